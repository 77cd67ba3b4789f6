//! A page of metrics, read as an operator reads it.

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
    }
}
