use std::time::Duration;
use sim::{executor::Simulation, timer};
use worlds::{fleet::{Fleet, Terms}, thousands, process};
fn main() {
    let nodes: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let secs: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let t = std::thread::spawn(move || Simulation::new(1).block_on(async move {
        let before = process::resident_bytes();
        let fleet = Fleet::new(&Terms { seed: 1, nodes, link: thousands::link(10, 100), config: thousands::config(), seeds: 10 });
        eprintln!("made {}", (process::resident_bytes() - before) / nodes as u64);
        fleet.start(Duration::from_secs(120)).await;
        eprintln!("started {}", (process::resident_bytes() - before) / nodes as u64);
        timer::sleep(Duration::from_secs(secs)).await;
        let mut wires = 0; for n in 0..nodes { wires += fleet.world().net().open_wires(sim::net::NodeId(n as u32)); }
        eprintln!("rest {} wires {}", (process::resident_bytes() - before) / nodes as u64, wires as f64 / nodes as f64);
        std::process::exit(0);
    }));
    t.join().unwrap();
}
