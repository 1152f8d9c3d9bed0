//! Times on the command line: a day, a time of RFC 3339, or a duration before now.

use chrono::{DateTime, NaiveDate, NaiveTime, SecondsFormat, TimeDelta, Utc};

/// What a time can be, for errors and help.
const FORMS: &str = "a day (2026-01-31, from its start in UTC), a time of RFC 3339 \
                     (2026-01-31T12:00:00Z), or a duration before now (30m, 2h, 7d)";

/// Parses a time in the past or the future; returns it as RFC 3339 in UTC.
///
/// # Errors
/// When it is none of the forms; the text lists them.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    at(text, Utc::now()).ok_or_else(|| format!("a time is {FORMS}"))
}

fn at(text: &str, now: DateTime<Utc>) -> Option<String> {
    let time = if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        time.to_utc()
    } else if let Ok(day) = text.parse::<NaiveDate>() {
        day.and_time(NaiveTime::MIN).and_utc()
    } else {
        now.checked_sub_signed(duration(text)?)?
    };
    Some(time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

/// A number and its unit, `2h` or `2h ago`.
fn duration(text: &str) -> Option<TimeDelta> {
    let text = text.strip_suffix("ago").unwrap_or(text).trim_end();
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u32 = number.parse().ok()?;
    match unit {
        "s" => TimeDelta::try_seconds(number.into()),
        "m" => TimeDelta::try_minutes(number.into()),
        "h" => TimeDelta::try_hours(number.into()),
        "d" => TimeDelta::try_days(number.into()),
        "w" => TimeDelta::try_weeks(number.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_a_day_a_time_or_a_duration() {
        fn check(text: &str, expected: Option<&str>) {
            let now = "2026-03-01T12:30:00Z".parse().unwrap();
            assert_eq!(at(text, now).as_deref(), expected, "{text}");
        }
        check("2026-01-31", Some("2026-01-31T00:00:00Z"));
        check("2026-01-31T10:00:00+02:00", Some("2026-01-31T08:00:00Z"));
        check("2026-01-31T10:00:00.5Z", Some("2026-01-31T10:00:00.500Z"));
        check("2h", Some("2026-03-01T10:30:00Z"));
        check("7d ago", Some("2026-02-22T12:30:00Z"));
        check("1w", Some("2026-02-22T12:30:00Z"));
        check("90s", Some("2026-03-01T12:28:30Z"));
        for wrong in [
            "",
            "yesterday",
            "x",
            "h",
            "-2h",
            "2",
            "2y",
            "2ü",
            "2026-02-30",
            "2026-1",
            "4000000000d",
        ] {
            check(wrong, None);
        }
        assert!(parse("x").unwrap_err().contains("2026-01-31T12:00:00Z"));
    }
}
