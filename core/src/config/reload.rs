//! The configuration in force, and how a new one replaces it.
//!
//! Always: readers see either the old or the new configuration whole; a configuration with an error
//! changes nothing; a key that only a restart can apply keeps its value until then and is reported.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;

use super::{
    declare::{Apply, KeyDecl, Settings},
    load::{Broken, ConfigErrors, Loaded, Sources, build},
};
use crate::lock::{LockDecl, RankedMutex};

type Rules<T> = Box<dyn Fn(&T) -> Vec<Broken> + Send + Sync>;

pub struct Reloadable<T> {
    current: ArcSwap<T>,
    prefix: String,
    rules: Rules<T>,
    /// What the last load set; one reload at a time compares against it and replaces it.
    loaded: RankedMutex<Loaded<T>>,
}

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReloadReport {
    /// Keys whose new value is in force.
    pub applied: Vec<String>,
    /// Keys that changed but keep their old value until the process restarts.
    pub needs_restart: Vec<String>,
}

impl<T: Settings + Clone + Send + Sync> Reloadable<T> {
    /// Loads for the first time; the rules hold for every later reload too.
    pub fn load(
        sources: &Sources,
        prefix: &str,
        rules: impl Fn(&T) -> Vec<Broken> + Send + Sync + 'static,
    ) -> Result<Self, ConfigErrors> {
        let loaded = sources.load(prefix, &rules)?;
        Ok(Reloadable {
            current: ArcSwap::from_pointee(loaded.config.clone()),
            prefix: prefix.to_owned(),
            rules: Box::new(rules),
            loaded: RankedMutex::new(LOADED, loaded),
        })
    }

    /// The configuration in force.
    pub fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    pub fn reload(&self, sources: &Sources) -> Result<ReloadReport, ConfigErrors> {
        let mut loaded = self.loaded.lock();
        let new = sources.load(&self.prefix, &self.rules)?;
        let (mut report, mut set) = (ReloadReport::default(), new.set);
        for key in T::keys() {
            let value = |set: &std::collections::BTreeMap<String, _>| {
                let (value, _): &(toml::Value, _) = set.get(&key.name)?;
                Some(value.to_string())
            };
            let (old, new) = (value(&loaded.set), value(&set));
            if same(&key, old.as_deref(), new.as_deref()) {
                continue;
            }
            if key.apply == Apply::Live {
                report.applied.push(key.name);
                continue;
            }
            match loaded.set.get(&key.name) {
                Some(kept) => set.insert(key.name.clone(), kept.clone()),
                None => set.remove(&key.name),
            };
            report.needs_restart.push(key.name);
        }
        // With old values kept, the rules are asked again: a mixture must hold as well.
        let mixed = build(set, &self.rules)?;
        self.current.store(Arc::new(mixed.config.clone()));
        *loaded = mixed;
        Ok(report)
    }
}

/// A value written out that equals the default is no change.
fn same(key: &KeyDecl, old: Option<&str>, new: Option<&str>) -> bool {
    old.unwrap_or(&key.default) == new.unwrap_or(&key.default)
}

const LOADED: LockDecl = LockDecl {
    name: "config_loaded",
    rank: crate::lock::LEAF - 1,
    guards: "which source set which key at the last load",
};

#[cfg(test)]
mod tests {
    use super::*;

    crate::settings! {
        struct Config {
            /// Where to listen.
            bind: String = "127.0.0.1:1".to_owned(), restart;
            /// Low water.
            low: u32 = 1 => 0..=100;
            /// High water.
            high: u32 = 10 => 0..=100, restart;
        }
    }

    fn ordered(c: &Config) -> Vec<Broken> {
        let reason = "must be at most `high`".to_owned();
        let broken = Broken { key: "low", reason };
        if c.low > c.high { vec![broken] } else { vec![] }
    }

    fn file(text: &str) -> Sources {
        Sources {
            file: Some(("x.toml".to_owned(), text.to_owned())),
            ..Sources::default()
        }
    }

    fn start(text: &str) -> Reloadable<Config> {
        Reloadable::load(&file(text), "X_", ordered).unwrap()
    }

    // proves: RWD-2.11, EDG-4.2
    #[test]
    fn live_keys_apply_and_disruptive_ones_wait_for_a_restart() {
        let config = start("low = 2");
        let before = config.current();
        let report = config
            .reload(&file("low = 3\nbind = '127.0.0.1:2'"))
            .unwrap();
        assert_eq!(report.applied, ["low"]);
        assert_eq!(report.needs_restart, ["bind"]);
        assert_eq!((before.low, config.current().low), (2, 3));
        assert_eq!(config.current().bind, "127.0.0.1:1");
        // The change stays reported until it is undone.
        let again = config
            .reload(&file("low = 3\nbind = '127.0.0.1:2'"))
            .unwrap();
        assert_eq!((again.applied.len(), again.needs_restart.len()), (0, 1));
        let undone = config
            .reload(&file("low = 3\nbind = '127.0.0.1:1'"))
            .unwrap();
        assert_eq!(undone, ReloadReport::default());
    }

    #[test]
    fn a_disruptive_key_keeps_the_value_it_was_started_with_even_when_its_line_is_removed() {
        let config = start("bind = '127.0.0.1:5'\nlow = 2");
        for text in ["low = 3", "bind = '127.0.0.1:6'"] {
            let report = config.reload(&file(text)).unwrap();
            assert_eq!(report.needs_restart, ["bind"], "{text}");
            assert_eq!(config.current().bind, "127.0.0.1:5", "{text}");
        }
        assert_eq!(
            config.current().low,
            1,
            "its line is gone, so the default holds"
        );
    }

    #[test]
    fn a_bad_reload_keeps_the_old_snapshot() {
        let config = start("low = 2");
        for bad in ["low = 101", "low = 'x'", "lwo = 1", "low = ", "low = 11"] {
            assert!(config.reload(&file(bad)).is_err(), "{bad}");
            assert_eq!(config.current().low, 2, "{bad}");
        }
        assert_eq!(
            config.reload(&file("low = 2")).unwrap(),
            ReloadReport::default()
        );
    }

    #[test]
    fn rules_hold_for_the_mixture_of_new_and_kept_values() {
        let config = start("");
        // Valid as a whole, but `high` waits for a restart and `low` alone would exceed it.
        let error = config.reload(&file("low = 20\nhigh = 30")).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("x.toml:1: `low` = 20: must be at most `high`"),
            "{error}"
        );
        assert_eq!(config.current().low, 1);
    }
}
