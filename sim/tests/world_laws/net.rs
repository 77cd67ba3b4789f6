//! The network: what a link, a partition, a dead process and a dead machine do to a connection.

use std::io::ErrorKind;

use sim::{disk::Death, timer, world::Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{MS, SECOND, Two, kind, law, read, send, within};

#[test]
fn a_byte_takes_at_least_the_latency_of_its_link() {
    law(|two: Two| async move {
        two.set_both(|link| link.latency = (30 * MS, 40 * MS));
        let begin = timer::now();
        let (mut a, mut b) = two.connected().await;
        let connecting = timer::now() - begin;
        assert!((60 * MS..=80 * MS).contains(&connecting), "{connecting:?}");
        send(&mut a, b"x").await;
        let (_, took) = read(&mut b, 1).await;
        assert!((30 * MS..=40 * MS).contains(&took), "{took:?}");
    });
}

#[test]
fn segments_never_overtake_each_other() {
    law(|two: Two| async move {
        two.set_both(|link| link.latency = (std::time::Duration::ZERO, 500 * MS));
        let (mut a, mut b) = two.connected().await;
        let sent: Vec<u8> = (0..=255).collect();
        for byte in &sent {
            send(&mut a, &[*byte]).await;
        }
        assert_eq!(read(&mut b, 256).await.0.unwrap(), sent);
    });
}

#[test]
fn a_full_window_stops_the_writer_until_the_reader_reads() {
    law(|two: Two| async move {
        let (mut a, mut b) = two.connected().await;
        let much = vec![7; 64 * 1024];
        send(&mut a, &much).await;
        assert!(within(SECOND, a.write(b"x")).await.is_none());
        let (taken, ()) = tokio::join!(biased; read(&mut b, 1), async {
            assert_eq!(within(SECOND, a.write(b"xy")).await.unwrap().unwrap(), 1);
        });
        assert_eq!(taken.0.unwrap(), [7]);
    });
}

#[test]
fn a_partition_stalls_bytes_and_healing_releases_them_in_order() {
    law(|two: Two| async move {
        let (mut a, mut b) = two.connected().await;
        two.set_both(|link| link.blocked = true);
        for piece in [b"one ", b"two "] {
            send(&mut a, piece).await;
        }
        a.shutdown().await.unwrap();
        let mut all = String::new();
        assert!(within(60 * SECOND, b.read_u8()).await.is_none());
        two.world.net().heal();
        let end = within(SECOND, b.read_to_string(&mut all)).await;
        assert_eq!((end.is_some(), all.as_str()), (true, "one two "));
    });
}

#[test]
fn a_one_way_cut_lets_the_other_way_through() {
    law(|two: Two| async move {
        let (mut a, mut b) = two.connected().await;
        let blocked = |yes: bool| move |link: &mut sim::net::Link| link.blocked = yes;
        two.world.net().set_link(two.a, two.b, blocked(true));
        send(&mut a, b"x").await;
        send(&mut b, b"y").await;
        assert_eq!(read(&mut a, 1).await.0.unwrap(), b"y");
        assert!(within(SECOND, b.read_u8()).await.is_none());
        two.world.net().set_link(two.a, two.b, blocked(false));
        assert_eq!(within(SECOND, b.read_u8()).await.unwrap().unwrap(), b'x');
    });
}

#[test]
fn each_loss_costs_a_retransmission() {
    law(|two: Two| async move {
        let (mut a, mut b) = two.connected().await;
        two.set_both(|link| link.loss_per_10_000 = 5000);
        let mut slow = 0;
        for _ in 0..20 {
            send(&mut a, b"x").await;
            let (got, took) = read(&mut b, 1).await;
            assert_eq!(got.unwrap(), b"x");
            slow += u32::from(took >= 200 * MS);
        }
        assert!((3..=17).contains(&slow), "{slow} of 20 were lost first");
    });
}

#[test]
fn a_slow_link_carries_no_more_than_its_rate_however_the_bytes_are_cut() {
    law(|two: Two| async move {
        let (mut a, mut b) = two.connected().await;
        two.set_both(|link| link.bytes_per_s = 1000);
        for _ in 0..50 {
            send(&mut a, &[1; 100]).await;
        }
        let (_, took) = read(&mut b, 5000).await;
        assert!((5 * SECOND..6 * SECOND).contains(&took), "{took:?}");
    });
}

#[test]
fn a_process_that_dies_resets_its_connections() {
    law(|two: Two| async move {
        let (mut a, _b) = two.connected().await;
        two.world.die(two.b, Death::Process, "killed");
        let read = within(SECOND, a.read_u8()).await.expect("it is told");
        assert_eq!(kind(read), ErrorKind::ConnectionReset);
        assert_eq!(kind(a.write(b"x").await), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_writer_that_waits_for_room_hears_of_the_reset() {
    law(|two: Two| async move {
        let (mut a, _b) = two.connected().await;
        send(&mut a, &vec![7; 64 * 1024]).await;
        let (written, ()) = tokio::join!(biased; within(SECOND, a.write(b"x")), async {
            timer::sleep(MS).await;
            two.world.die(two.b, Death::Process, "killed");
        });
        assert_eq!(
            kind(written.expect("it is told")),
            ErrorKind::ConnectionReset
        );
    });
}

#[test]
fn a_machine_that_dies_says_nothing_until_it_is_back_and_then_resets_who_talked_to_it() {
    law(|two: Two| async move {
        let (mut a, _b) = two.connected().await;
        two.world.die(two.b, Death::Power, "power lost");
        assert!(within(60 * SECOND, a.read_u8()).await.is_none());
        send(&mut a, b"anybody there?").await;
        assert!(within(60 * SECOND, a.read_u8()).await.is_none());
        two.world.start(two.b);
        let read = within(SECOND, a.read_u8()).await.expect("it is told");
        assert_eq!(kind(read), ErrorKind::ConnectionReset);
    });
}

#[test]
fn what_a_dead_machine_had_not_yet_sent_is_gone_with_it() {
    law(|two: Two| async move {
        let (mut a, mut b) = two.connected().await;
        two.set_both(|link| link.blocked = true);
        send(&mut b, b"ghost").await;
        two.world.die(two.b, Death::Power, "power lost");
        two.world.net().heal();
        assert!(within(60 * SECOND, a.read_u8()).await.is_none());
    });
}

#[test]
fn a_reset_is_lost_in_a_partition_and_answered_when_the_peer_speaks_after_it() {
    law(|two: Two| async move {
        let (mut a, _b) = two.connected().await;
        two.set_both(|link| link.blocked = true);
        two.world.die(two.b, Death::Process, "killed");
        two.world.net().heal();
        assert!(within(60 * SECOND, a.read_u8()).await.is_none());
        send(&mut a, b"anybody there?").await;
        let read = within(SECOND, a.read_u8()).await.expect("it is told");
        assert_eq!(kind(read), ErrorKind::ConnectionReset);
    });
}

#[test]
fn connecting_is_refused_by_a_live_machine_and_unanswered_by_a_dead_one() {
    law(|two: Two| async move {
        let refused = within(SECOND, two.connect()).await.expect("an answer");
        assert_eq!(kind(refused.map(drop)), ErrorKind::ConnectionRefused);

        two.world.die(two.b, Death::Process, "killed");
        let refused = within(SECOND, two.connect()).await.expect("an answer");
        assert_eq!(kind(refused.map(drop)), ErrorKind::ConnectionRefused);

        two.world.start(two.b);
        two.world.die(two.b, Death::Power, "power lost");
        let (found, ()) = tokio::join!(biased; within(60 * SECOND, two.connect()), async {
            timer::sleep(30 * SECOND).await;
            two.world.start(two.b);
        });
        let found = found.expect("the next SYN finds the machine");
        assert_eq!(kind(found.map(drop)), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_connect_across_a_partition_succeeds_once_it_heals() {
    law(|two: Two| async move {
        let _listener = two.listen().await;
        for one_way in [true, false] {
            if one_way {
                // The SYN arrives, its answer does not.
                let net = two.world.net();
                net.set_link(two.b, two.a, |link| link.blocked = true);
            } else {
                two.set_both(|link| link.blocked = true);
            }
            let (made, ()) = tokio::join!(biased; within(60 * SECOND, two.connect()), async {
                timer::sleep(20 * SECOND).await;
                two.world.net().heal();
            });
            assert!(made.expect("an answer").is_ok());
            assert!(timer::elapsed() > 20 * SECOND);
        }
    });
}

#[test]
fn only_new_connections_hang_where_connects_hang() {
    law(|two: Two| async move {
        let listener = two.listen().await;
        let mut a = two.connect().await.unwrap();
        let (mut b, _) = listener.accept().await.unwrap();
        two.set_both(|link| link.connects_hang = true);
        assert!(within(30 * SECOND, two.connect()).await.is_none());
        send(&mut a, b"x").await;
        assert_eq!(read(&mut b, 1).await.0.unwrap(), b"x");
    });
}

#[test]
fn what_an_old_incarnation_holds_gets_errors_and_reaches_nobody() {
    law(|two: Two| async move {
        let old = two.env(two.b);
        let listener = two.listen().await;
        let mut a = two.connect().await.unwrap();
        let (mut b, _) = listener.accept().await.unwrap();
        two.world.restart(two.b);
        assert_eq!(two.world.status(two.b), Status::Up);
        assert_eq!(kind(b.write(b"ghost").await), ErrorKind::Other);
        assert_eq!(kind(b.read_u8().await), ErrorKind::Other);
        assert_eq!(kind(listener.accept().await.map(drop)), ErrorKind::Other);
        assert_eq!(
            kind(old.listen(two.b_addr()).await.map(drop)),
            ErrorKind::Other
        );
        assert_eq!(
            kind(old.connect(two.b_addr()).await.map(drop)),
            ErrorKind::Other
        );
        assert_eq!(kind(a.read_u8().await), ErrorKind::ConnectionReset);
        // The port is free for the process that lives, and its streams still work.
        let (mut a, mut b) = two.connected().await;
        send(&mut b, b"x").await;
        assert_eq!(read(&mut a, 1).await.0.unwrap(), b"x");
    });
}

#[test]
fn a_middlebox_reset_strikes_both_ends() {
    law(|two: Two| async move {
        let (mut a, mut b) = two.connected().await;
        assert_eq!(two.world.net().open_wires(two.a), 1);
        assert_eq!(two.world.net().reset_connections(two.a), 1);
        for conn in [&mut a, &mut b] {
            assert_eq!(kind(conn.read_u8().await), ErrorKind::ConnectionReset);
        }
        assert_eq!(two.world.net().open_wires(two.a), 0);
        assert_eq!(two.world.net().reset_connections(two.a), 0);
    });
}
