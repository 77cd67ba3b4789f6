//! What the command line of every service has, on the real binaries: sources of the configuration, one line for each
//! mistake, closed pipes, starts that leave nothing behind.
#![allow(
    clippy::disallowed_methods,
    reason = "runs the real binaries on real files"
)]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
};

use tests::daemon::{Daemon, Scratch, ends, ron_kms, svc_dht};

/// A key that can change while it runs, with another value; and one that cannot.
const CHANGES: [(&str, &str); 2] = [
    ("[verify]\ncache_ttl_ms = 1234\n", "verify.cache_ttl_ms"),
    ("[lookup]\nalpha = 4\n", "lookup.alpha"),
];

/// A service: its binary, the prefix of its variables, and what lets it start beside others.
struct Program {
    binary: &'static Path,
    prefix: &'static str,
    /// Where its HTTP listener is set.
    bind: &'static str,
    more: &'static [&'static str],
}

fn programs() -> [Program; 2] {
    [
        Program {
            binary: ron_kms(),
            prefix: "RON_KMS_",
            bind: "bind",
            more: &[],
        },
        Program {
            binary: svc_dht(),
            prefix: "SVC_DHT_",
            bind: "api.bind",
            more: &["bind=127.0.0.1:0"],
        },
    ]
}

impl Program {
    fn serve(&self, dir: &Scratch, settings: &[&str]) -> Command {
        let mut command = Command::new(self.binary);
        command.current_dir(dir.path()).arg("serve");
        let bind = format!("{}=127.0.0.1:0", self.bind);
        let own = [&*bind, "data_dir=data"].into_iter();
        let own = own.chain(self.more.iter().copied());
        let key = |setting: &str| setting.split('=').next().map(str::to_owned);
        let own = own.filter(|own| settings.iter().all(|other| key(other) != key(own)));
        for setting in own.chain(settings.iter().copied()) {
            command.args(["--set", setting]);
        }
        command
    }

    /// The lines of a start that is refused, which leaves the directory as it was.
    fn refused(&self, dir: &Scratch, settings: &[&str]) -> Vec<String> {
        let names = || {
            let names = fs::read_dir(dir.path()).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        let out = ends(&self.serve(dir, settings));
        let error = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{settings:?}: {error}");
        assert_eq!(names(), before, "{settings:?}");
        error.lines().map(str::to_owned).collect()
    }
}

#[test]
fn variables_of_the_command_line_are_never_mistaken_for_keys() {
    for program in programs() {
        let dir = Scratch::new(&format!("commands-own-{}", program.prefix));
        fs::write(dir.path().join("x.toml"), "drain_deadline_ms = 1234\n").unwrap();
        let mut command = program.serve(&dir, &[]);
        for (name, value) in [
            ("URL", "http://127.0.0.1:1"),
            ("TOKEN", "secret"),
            ("LOG", "warn"),
            ("CONFIG", "x.toml"),
        ] {
            command.env(format!("{}{name}", program.prefix), value);
        }
        let daemon = Daemon::start(command, &dir.path().join("errors"));
        let farewell = daemon.unwrap_or_else(|said| panic!("{said:?}")).stop();
        assert_eq!(farewell.code, Some(0), "{farewell:?}");
        assert_eq!(farewell.logged, "", "LOG sets what is logged");
    }
}

#[test]
fn each_mistake_has_a_line_of_its_own() {
    for program in programs() {
        let dir = Scratch::new(&format!("commands-lines-{}", program.prefix));
        let lines = program.refused(
            &dir,
            &["nosuch=1", "drain_deadline_ms=0", "auth.mode=maybe"],
        );
        let told = ["`nosuch`", "`drain_deadline_ms` = 0", "`auth.mode` = "];
        assert_eq!(lines.len(), told.len(), "{lines:?}");
        for (line, told) in lines.iter().zip(told) {
            assert!(
                line.starts_with("error: invalid configuration: --set: "),
                "{line}"
            );
            assert!(line.contains(told), "{line}");
        }
    }
}

#[test]
fn a_service_whose_pipes_nobody_reads_serves_and_ends_in_order() {
    for program in programs() {
        let dir = Scratch::new(&format!("commands-pipes-{}", program.prefix));
        let mut command = program.serve(&dir, &["reload.watch_ms=0"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut service = command.spawn().unwrap();
        // Whatever it logs from here on, such as a reload, finds nobody.
        drop(service.stderr.take());
        let mut first = String::new();
        let mut reader = BufReader::new(service.stdout.take().unwrap());
        reader.read_line(&mut first).unwrap();
        assert!(first.contains("listens on http://127.0.0.1:"), "{first}");
        drop(reader);
        for signal in ["-HUP", "-TERM"] {
            let sent = Command::new("kill")
                .args([signal, &service.id().to_string()])
                .status();
            assert!(sent.unwrap().success());
        }
        assert_eq!(
            service.wait().unwrap().code(),
            Some(0),
            "{}",
            program.prefix
        );
    }
}

#[test]
fn a_start_that_is_refused_leaves_nothing_behind() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    for program in programs() {
        let dir = Scratch::new(&format!("commands-refused-{}", program.prefix));
        fs::write(dir.path().join("no.pem"), "no certificate").unwrap();
        let bind = format!("{}={taken}", program.bind);
        let cases: [(&[&str], &str); 5] = [
            (&[&bind], "the address is in use"),
            (
                &["tls.cert=nowhere.pem", "tls.key=no.pem"],
                "nowhere.pem: `tls.cert`: ",
            ),
            (
                &["tls.cert=no.pem", "tls.key=no.pem"],
                "no.pem: `tls.cert`: no certificate in",
            ),
            (&["tls.cert=no.pem"], "tls.cert and tls.key belong together"),
            (&["auth.mode=ingress"], "`auth.ingress.trusted_peers`"),
        ];
        for (settings, told) in cases {
            let lines = program.refused(&dir, settings);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].contains(told), "{told}: {lines:?}");
        }
    }
}

#[test]
fn a_reload_applies_what_can_change_and_names_what_needs_a_restart() {
    for (program, (change, key)) in programs().iter().zip(CHANGES) {
        let dir = Scratch::new(&format!("commands-reload-{}", program.prefix));
        let (file, errors) = (dir.path().join("x.toml"), dir.path().join("errors"));
        fs::write(&file, "").unwrap();
        let mut command = program.serve(&dir, &["reload.watch_ms=20"]);
        command.args(["--config", "x.toml"]);
        let daemon = Daemon::start(command, &errors).unwrap_or_else(|said| panic!("{said:?}"));
        let told = |what: &[&str]| {
            let all = |line: &str| what.iter().all(|word| line.contains(word));
            let logged = || fs::read_to_string(&errors).unwrap();
            let mut looks = (0..200_000).map(|_| logged());
            assert!(
                looks.any(|log| log.lines().any(all)),
                "{what:?}: {}",
                logged()
            );
        };
        // The file is watched.
        let restart = "drain_deadline_ms = 77\n";
        fs::write(&file, format!("{restart}{change}")).unwrap();
        told(&[
            "the file changed",
            &format!("[\"{key}\"]"),
            "[\"drain_deadline_ms\"]",
        ]);
        // What is wrong changes nothing.
        fs::write(&file, "nosuch = 1\n").unwrap();
        told(&[
            "the file changed",
            "x.toml:1: `nosuch`: unknown key",
            "the old configuration holds",
        ]);
        // The signal does the same; what was kept is still told.
        fs::write(&file, restart).unwrap();
        told(&["the file changed", &format!("[\"{key}\"]")]);
        let sent = Command::new("kill")
            .args(["-HUP", &daemon.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        told(&["SIGHUP", "[\"drain_deadline_ms\"]"]);
        let farewell = daemon.stop();
        assert_eq!(farewell.code, Some(0), "{farewell:?}");
    }
}
