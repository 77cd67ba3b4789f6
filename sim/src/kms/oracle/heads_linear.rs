//! What callers see of a key's newest version is what some one-at-a-time order of their asks would show them.
//!
//! A rotation gives the next version; a signature by whatever is newest reads the present one. A rotation whose
//! end nobody knows may have taken effect at any later time, or never.

use std::collections::BTreeMap;

use super::Told;
use crate::{
    linear::{HeadOp, HeadRet, Histories, VersionHead},
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.heads_linearizable",
    law: "rotations of a key and signatures by its newest version have an order that agrees with real time",
    premise: EVERYWHERE,
    make: || Box::new(HeadsLinear::default()),
};

#[derive(Default)]
struct HeadsLinear {
    asked: Vec<Asked>,
    /// Rotations under way, by the client's operation: their place in `asked`.
    rotating: BTreeMap<u64, usize>,
}

struct Asked {
    /// Node and kid.
    key: String,
    op: HeadOp,
    began_us: u64,
    ended: Option<(u64, HeadRet)>,
    refused: bool,
}

impl Oracle for HeadsLinear {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let now = event.at.as_micros() as u64;
        let What::Probe { event, id, detail } = &event.what else {
            return Ok(());
        };
        match *event {
            "client.rotating" => {
                self.rotating.insert(*id, self.asked.len());
                self.asked.push(Asked {
                    key: detail.clone(),
                    op: HeadOp::Rotate,
                    began_us: now,
                    ended: None,
                    refused: false,
                });
            }
            "client.rotate_ended" => {
                let Some(place) = self.rotating.remove(id) else {
                    return Err(format!("a rotation ended that was not asked for: {id}"));
                };
                match detail.parse() {
                    Ok(head) => self.asked[place].ended = Some((now, HeadRet::Rotated(head))),
                    Err(_) => self.asked[place].refused = true,
                }
            }
            "client.signed" if detail.ends_with(" head") => {
                let told = Told::parse(detail).ok_or("no receipt")?;
                let named = told.key.split_once("#v");
                let Some((kid, Ok(version))) = named.map(|(kid, n)| (kid, n.parse())) else {
                    return Err(format!("{:?} names no version", told.key));
                };
                self.asked.push(Asked {
                    key: format!("{} {kid}", told.node),
                    op: HeadOp::Read,
                    began_us: told.began_us,
                    ended: Some((now, HeadRet::Head(version))),
                    refused: false,
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn sample(&mut self, _: &WorldView) -> Verdict {
        Ok(())
    }

    fn finish(&mut self, _: &WorldView) -> Verdict {
        let mut moments = Vec::new();
        for (n, asked) in self.asked.iter().enumerate().filter(|(_, a)| !a.refused) {
            moments.push((asked.began_us, false, n));
            moments.extend(asked.ended.map(|(at, _)| (at, true, n)));
        }
        // What ends in the very moment in which another begins may overlap with it.
        moments.sort_unstable();
        let mut histories: Histories<&str, VersionHead> = Histories::default();
        let mut ids = BTreeMap::new();
        for (_, ends, n) in moments {
            let Asked { key, op, ended, .. } = &self.asked[n];
            let history = histories.of(key);
            match (ends, ended, ids.get(&n)) {
                (true, Some((_, ret)), Some(id)) => history.returned(*id, *ret),
                _ => {
                    ids.insert(n, history.invoke(n as u64, *op));
                }
            }
        }
        histories.refute(|_| VersionHead(1))
    }
}
