//! Figures with bounds: what was measured, what was promised, and whether it holds.

use std::fmt::Write as _;

/// Numbers of one kind, to be asked for percentiles.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest that `percent` of a hundred do not exceed; nothing is not a number.
    pub fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
        sorted.get(at.max(1) - 1).copied().unwrap_or(f64::NAN)
    }

    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }
}

/// What a figure must be.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Below(f64),
    /// It is told, and anything will do.
    None,
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtMost(most) => value <= most,
            Bound::AtLeast(least) => value >= least,
            Bound::Below(limit) => value < limit,
            Bound::None => true,
        }
    }

    fn told(self, digits: usize) -> String {
        match self {
            Bound::AtMost(most) => format!("<= {most:.digits$}"),
            Bound::AtLeast(least) => format!(">= {least:.digits$}"),
            Bound::Below(limit) => format!("< {limit:.digits$}"),
            Bound::None => String::new(),
        }
    }
}

struct Row {
    what: String,
    value: f64,
    digits: usize,
    bound: Bound,
}

/// One world's outcome.
#[derive(Default)]
pub struct Figures(Vec<Row>);

impl Figures {
    pub fn add(&mut self, what: impl Into<String>, value: f64, digits: usize, bound: Bound) {
        self.0.push(Row {
            what: what.into(),
            value,
            digits,
            bound,
        });
    }

    pub fn told(&mut self, what: impl Into<String>, value: f64, digits: usize) {
        self.add(what, value, digits, Bound::None);
    }

    /// A figure that is not a number keeps no bound.
    pub fn hold(&self) -> bool {
        self.broken().is_empty()
    }

    /// What is out of bounds.
    pub fn broken(&self) -> Vec<&str> {
        let broken = self.0.iter().filter(|row| !row.bound.holds(row.value));
        broken.map(|row| row.what.as_str()).collect()
    }

    pub fn table(&self) -> String {
        let width = self.0.iter().map(|row| row.what.chars().count()).max();
        let width = width.unwrap_or(0);
        let mut out = String::new();
        for row in &self.0 {
            let Row {
                what,
                value,
                digits,
                bound,
            } = row;
            let verdict = match (bound, bound.holds(*value)) {
                (Bound::None, _) => "",
                (_, true) => "holds",
                (_, false) => "OUT OF BOUNDS",
            };
            let bound = bound.told(*digits);
            let line = format!("{what:<width$}  {value:>14.digits$}  {bound:>14}  {verdict}");
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_there() {
        let mut samples = Samples::default();
        (1..=200).rev().for_each(|n| samples.add(f64::from(n)));
        for (percent, value) in [(0.0, 1.0), (50.0, 100.0), (99.0, 198.0), (100.0, 200.0)] {
            assert_eq!(samples.percentile(percent), value, "p{percent}");
        }
        assert!(Samples::default().percentile(50.0).is_nan());
    }

    #[test]
    fn one_figure_out_of_bounds_is_told_and_fails_them_all() {
        let mut figures = Figures::default();
        figures.told("free", 1e9, 0);
        figures.add("few", 3.0, 0, Bound::AtMost(3.0));
        assert!(figures.hold(), "{}", figures.table());
        figures.add("nothing", f64::NAN, 0, Bound::AtLeast(0.0));
        figures.add("less", 3.0, 1, Bound::Below(3.0));
        assert!(!figures.hold());
        assert_eq!(figures.table().matches("OUT OF BOUNDS").count(), 2);
    }
}
