//! What duplication, reordering and a forgotten connection mean for an ordered stream, and that a fault is noted
//! as felt only where it changed something.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{MS, SECOND, Two, law, read, send, within};

#[test]
fn a_duplicated_segment_is_read_once_and_takes_a_slow_link_twice() {
    law(|two: Two| async move {
        let (mut a, mut b) = two.connected().await;
        two.set_both(|link| {
            link.latency = (MS, MS);
            link.bytes_per_s = 10_000;
        });
        send(&mut a, &[7; 100]).await;
        let (_, once) = read(&mut b, 100).await;
        two.set_both(|link| link.duplicate_per_10_000 = 10_000);
        send(&mut a, &[8; 100]).await;
        let (bytes, twice) = read(&mut b, 100).await;
        assert_eq!(bytes.unwrap(), [8; 100]);
        assert!((11 * MS..12 * MS).contains(&once), "{once:?}");
        assert!((21 * MS..22 * MS).contains(&twice), "{twice:?}");
        assert!(
            within(SECOND, b.read_u8()).await.is_none(),
            "a copy was read"
        );
    });
}

#[test]
fn a_late_segment_holds_up_what_was_sent_after_it_and_order_is_kept() {
    law(|two: Two| async move {
        let (mut a, mut b) = two.connected().await;
        two.set_both(|link| {
            link.latency = (MS, MS);
            link.reorder_per_10_000 = 5_000;
            link.reorder_by = 300 * MS;
        });
        let sent: Vec<u8> = (0..=99).collect();
        for byte in &sent {
            send(&mut a, &[*byte]).await;
        }
        let (bytes, took) = read(&mut b, 100).await;
        assert_eq!(bytes.unwrap(), sent);
        assert!((150 * MS..=302 * MS).contains(&took), "{took:?}");
    });
}

#[test]
fn a_silenced_connection_carries_nothing_and_tells_nobody_while_a_new_one_works() {
    law(|two: Two| async move {
        let listener = two.listen().await;
        let mut old = two.connect().await.unwrap();
        let (mut old_b, _) = listener.accept().await.unwrap();
        assert_eq!(two.world.net().silence_connections(two.b), 1);
        assert_eq!(
            two.world.net().silence_connections(two.b),
            0,
            "once is enough"
        );
        old.write_all(b"x")
            .await
            .expect("the writer notices nothing");
        assert!(within(60 * SECOND, old_b.read_u8()).await.is_none());
        drop(old_b);
        assert!(within(60 * SECOND, old.read_u8()).await.is_none());
        let mut new = two.connect().await.unwrap();
        let (mut new_b, _) = listener.accept().await.unwrap();
        send(&mut new, b"y").await;
        assert_eq!(read(&mut new_b, 1).await.0.unwrap(), b"y");
    });
}

#[test]
fn a_fault_is_felt_only_by_who_is_touched_by_it() {
    law(|two: Two| async move {
        let felt = two.world.node_parts(two.b).felt;
        two.set_both(|link| link.loss_per_10_000 = 10_000);
        assert!(!felt.has("net.loss"), "nothing was sent yet");
        two.set_both(|link| link.loss_per_10_000 = 0);
        let (mut a, mut b) = two.connected().await;
        send(&mut a, b"x").await;
        let _ = read(&mut b, 1).await;
        assert!(!felt.has("net.loss") && !felt.has("net.partition"));
        two.set_both(|link| link.loss_per_10_000 = 10_000);
        send(&mut a, b"x").await;
        assert!(felt.has("net.loss") && !felt.has("net.partition"));
        two.set_both(|link| link.blocked = true);
        send(&mut a, b"x").await;
        assert!(felt.has("net.partition"));
    });
}

#[test]
fn a_wrong_wall_clock_is_felt_when_it_is_looked_at() {
    law(|two: Two| async move {
        let (parts, env) = (two.world.node_parts(two.a), two.env(two.a));
        parts.clock.jump_wall(5_000);
        let _ = env.now();
        assert!(
            !parts.felt.has("clock.jump"),
            "it looked at the other clock"
        );
        let _ = env.wall();
        assert!(parts.felt.has("clock.jump") && !parts.felt.has("clock.drift"));
        parts.clock.set_drift(100);
        let _ = env.now();
        assert!(parts.felt.has("clock.drift"));
    });
}
