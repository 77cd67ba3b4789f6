//! Configuration that is loaded again and again: what is in force, and what each reload says of itself.

use std::collections::BTreeMap;

use ron_core::config::{Broken, ReloadReport, Reloadable, Sources};

use super::{Bench, Verdict, agree};

ron_core::settings! {
    /// Two keys that apply at once, two that wait for a restart, and a rule over two of them.
    struct Drilled {
        /// Low water.
        low: u32 = 1 => 0..=100;
        /// High water.
        high: u32 = 50 => 0..=100, restart;
        /// Any text.
        motto: String = "none".to_owned();
        /// Somewhere else.
        place: u32 = 7 => 1..=9, restart;
    }
}

/// The default of each key, and whether it applies at once, in order of declaration.
const KEYS: [(&str, &str, bool); 4] = [
    ("low", "1", true),
    ("high", "50", false),
    ("motto", "\"none\"", true),
    ("place", "7", false),
];

type Values = BTreeMap<&'static str, String>;

pub fn drill(bench: &mut Bench) -> Verdict {
    let mut force: Values = KEYS
        .map(|(key, default, _)| (key, default.to_owned()))
        .into();
    let config = Reloadable::load(&Sources::default(), "DRILL_", ordered);
    let config = config.map_err(|errors| format!("the defaults: {errors}"))?;
    for _ in 0..12 {
        let (before, held) = (config.current(), force.clone());
        let (sources, asked) = draw(bench);
        let expected = asked.and_then(|asked| reloaded(&mut force, asked));
        let came = config.reload(&sources);
        let told = format!("{sources:?} over {force:?}");
        if let Err(errors) = &came {
            agree(&format!("{told}: says why"), errors.0.is_empty(), false)?;
        }
        agree(&told, came.ok(), expected)?;
        agree(&told, shown(&config.current()), force.clone())?;
        agree("a configuration held since", shown(&before), held)?;
    }
    Ok(())
}

fn ordered(config: &Drilled) -> Vec<Broken> {
    let reason = "must be at most `high`".to_owned();
    let broken = Broken { key: "low", reason };
    if config.low > config.high {
        vec![broken]
    } else {
        vec![]
    }
}

fn shown(config: &Drilled) -> Values {
    let motto = format!("\"{}\"", config.motto);
    let all = [
        ("low", config.low.to_string()),
        ("high", config.high.to_string()),
        ("motto", motto),
        ("place", config.place.to_string()),
    ];
    all.into()
}

/// Some keys, from the file, the environment or the command line, which win in this order; `None` if one is wrong.
fn draw(bench: &mut Bench) -> (Sources, Option<Values>) {
    let (mut sources, mut file) = (Sources::default(), String::new());
    let (mut asked, mut sound) = (Values::new(), true);
    for from in ["file", "env", "cli"] {
        for (key, _, _) in KEYS {
            if !bench.one_in(3) {
                continue;
            }
            // What the environment and the command line say is text where a key takes text, whatever it looks like.
            let text = key == "motto" && from != "file";
            let good = text || !bench.one_in(25);
            sound &= good;
            let value = match (key, good) {
                ("low", true) => bench.pick(0, 70).to_string(),
                ("high", true) => bench.pick(30, 100).to_string(),
                ("place", true) => bench.pick(1, 9).to_string(),
                ("motto", true) => bench.one_of(&["\"none\"", "\"a\"", "\"b c\""]).to_owned(),
                ("low" | "high", false) => bench.one_of(&["101", "-1", "\"x\""]).to_owned(),
                ("place", false) => bench.one_of(&["0", "10"]).to_owned(),
                _ => "3".to_owned(),
            };
            let written = if text {
                value.trim_matches('"')
            } else {
                &value
            };
            match from {
                "file" => file.push_str(&format!("{key} = {written}\n")),
                "env" => {
                    let name = format!("DRILL_{}", key.to_uppercase());
                    sources.env.push((name, written.to_owned()));
                }
                _ => sources.cli.push(format!("{key}={written}")),
            }
            asked.insert(key, value);
        }
    }
    if bench.one_in(25) {
        file.push_str("unheard_of = 1\n");
        sound = false;
    }
    sources.file = Some(("drill.toml".to_owned(), file));
    (sources, sound.then_some(asked))
}

/// What a reload of sound values does to those in force; `None` if it is refused.
fn reloaded(force: &mut Values, asked: Values) -> Option<ReloadReport> {
    let number = |values: &Values, key: &str| values[key].parse::<u32>().unwrap_or_default();
    let holds = |values: &Values| number(values, "low") <= number(values, "high");
    let mut wanted: Values = KEYS
        .map(|(key, default, _)| (key, default.to_owned()))
        .into();
    wanted.extend(asked);
    if !holds(&wanted) {
        return None;
    }
    let (mut mixed, mut report) = (force.clone(), ReloadReport::default());
    for (key, _, live) in KEYS {
        if wanted[key] == force[key] {
            continue;
        }
        if live {
            report.applied.push(key.to_owned());
            mixed.insert(key, wanted[key].clone());
        } else {
            report.needs_restart.push(key.to_owned());
        }
    }
    if !holds(&mixed) {
        return None;
    }
    *force = mixed;
    Some(report)
}
