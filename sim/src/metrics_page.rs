//! A page of metrics, read as an operator reads it.

use std::collections::BTreeMap;

/// The value of the first line of this name that has all these labels.
pub fn value(page: &str, name: &str, labels: &[&str]) -> Option<u64> {
    let of_name = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    };
    let has_all = |line: &&str| labels.iter().all(|label| line.contains(label));
    let line = page.lines().filter(of_name).find(has_all)?;
    let value: f64 = line.rsplit(' ').next()?.parse().ok()?;
    Some(value as u64)
}

/// Every line with its value, by name and labels as they stand there.
pub fn all(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    lines.filter_map(value).collect()
}

/// What each metric is said to be: `counter`, `gauge` or `histogram`.
pub fn kinds(page: &str) -> BTreeMap<String, String> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let kind = |line: &str| {
        let (name, kind) = line.split_once(' ')?;
        Some((name.to_owned(), kind.to_owned()))
    };
    lines.filter_map(kind).collect()
}

/// A line's name: labels in the order of their declaration.
pub fn key(name: &str, labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return name.to_owned();
    }
    let pair = |(name, value): &(&str, &str)| format!("{name}=\"{value}\"");
    let labels: Vec<String> = labels.iter().map(pair).collect();
    format!("{name}{{{}}}", labels.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_whole_name_and_its_labels() {
        let page =
            "# HELP a_total x\na_total_more 9\na_total{k=\"x\"} 1\na_total{k=\"y\"} 2\nb 3\n";
        assert_eq!(value(page, "a_total", &[]), Some(1));
        assert_eq!(value(page, "a_total", &["k=\"y\""]), Some(2));
        assert_eq!(value(page, "a_total", &["k=\"z\""]), None);
        assert_eq!(value(page, "b", &[]), Some(3));
        assert_eq!(value(page, "a", &[]), None);
        assert_eq!(all(page).get(&key("a_total", &[("k", "y")])), Some(&2.0));
        assert_eq!((all(page).len(), kinds(page).len()), (4, 0));
    }
}
