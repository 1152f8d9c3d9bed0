//! Numbers as Chinese writes them: `二十三点五`, `三万`, `一百零五`, `3万`.
//! Never: a part of a number for the whole of it; one that is not understood is said to be unclear.

use std::ops::Range;

use super::words::is_chinese;

/// A number in its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Numeral {
    pub(super) place: Range<usize>,
    pub(super) value: f64,
    /// More belongs to it than was understood, or less.
    pub(super) is_unclear: bool,
}

const DIGITS: &str = "零一二三四五六七八九";
/// What a single `one` must stand before to be a number, and not part of a word.
const COUNTED: &str = "米度分秒级次步档小百十千万圈厘公%％楼号天刻";
const ONE_OF: &[&str] = &["个小时", "個小時", "个半", "個半", "个钟", "个百分"];
/// Behind a number they make it another, or none that is known.
const MORE: &[&str] = &["几", "幾", "多", "来", "余", "分之", "点", "點", "半"];
/// Of words, not of numbers.
const BEFORE: &[char] = &['星', '期', '第', '周'];

/// All of them, in their order.
pub(super) fn all(text: &str) -> Vec<Numeral> {
    let mut found = Vec::new();
    let mut next = 0;
    for (at, c) in text.char_indices() {
        if at < next || !is_numeral(c) && c != '半' {
            continue;
        }
        let left = text.get(at..).unwrap_or_default();
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        // What stands behind digits is read with them.
        let is_behind_digits = before.is_some_and(|c| c.is_ascii_digit());
        if let Some((length, value, is_unclear)) = read(left, before) {
            next = at + length;
            if !is_behind_digits {
                let place = at..at + length;
                found.push(Numeral {
                    place,
                    value,
                    is_unclear,
                });
            }
        } else {
            let run = left.chars().take_while(|c| is_numeral(*c));
            next = at + run.map(char::len_utf8).sum::<usize>();
        }
    }
    found
}

/// What a scale right behind digits makes of them, how long it is, and whether it is unclear.
pub(super) fn scaled(text: &str, value: f64) -> (f64, usize, bool) {
    let mut chars = text.chars();
    let scale = chars
        .next()
        .filter(|c| *c != '零')
        .and_then(|c| Some((c, scale(c)?)));
    let Some((c, scale)) = scale else {
        let is_unclear = text.starts_with(['点', '點'])
            && text
                .chars()
                .nth(1)
                .is_some_and(|c| is_numeral(c) || c == '半' || c.is_ascii_digit());
        return (
            value,
            0,
            is_unclear || text.starts_with(is_numeral) || text.starts_with("分之"),
        );
    };
    let next = chars.next();
    let goes_on =
        next.is_some_and(|c| is_numeral(c) || c.is_ascii_digit() || "几多来余".contains(c));
    (value * scale, c.len_utf8(), goes_on)
}

/// How long the number is that a text begins with, what it is, and whether it is unclear.
fn read(text: &str, before: Option<char>) -> Option<(usize, f64, bool)> {
    if text.starts_with('半') {
        let counted = [
            "半小时",
            "半小時",
            "半个小时",
            "半個小時",
            "半分钟",
            "半分鐘",
            "半个钟头",
        ];
        let is_half = !matches!(before, Some('一' | '个' | '個'))
            && counted.iter().any(|word| text.starts_with(word));
        return is_half.then_some(('半'.len_utf8(), 0.5, false));
    }
    let length = |text: &str| {
        let run = text.chars().take_while(|c| is_numeral(*c));
        run.map(char::len_utf8).sum::<usize>()
    };
    let run = text.get(..length(text))?;
    let after = text.get(run.len()..)?;
    let next = after.chars().next().unwrap_or(' ');
    let point = after.strip_prefix(['点', '點']);
    let decimals = point.map(|after| after.get(..length(after)).unwrap_or_default());
    let decimals = decimals.filter(|decimals| !decimals.is_empty());
    let is_share = run == "百" && after.starts_with("分之");
    let of_a_word = run == "一"
        && !COUNTED.contains(next)
        && decimals.is_none()
        && !ONE_OF.iter().any(|word| after.starts_with(word))
        || before.is_some_and(|before| BEFORE.contains(&before))
        || matches!(run, "千" | "万" | "萬" | "亿" | "億")
        || run == "零" && next == '下'
        || run == "百" && !is_chinese(next);
    if is_share || of_a_word {
        return None;
    }
    let (whole, is_unclear) = value(run);
    if let (Some(decimals), Some(point)) = (decimals, point) {
        let behind = point.get(decimals.len()..).unwrap_or_default();
        // `三点五分` and `八点三十` are times of the day.
        let is_clock =
            decimals.chars().any(|c| scale(c).is_some()) || behind.starts_with(['分', '半']);
        let digits: String = decimals
            .chars()
            .filter_map(digit)
            .map(|digit| digit.to_string())
            .collect();
        let part: f64 = format!("0.{digits}").parse().unwrap_or_default();
        let all = run.len() + '点'.len_utf8() + decimals.len();
        return Some((all, whole + part, is_unclear || is_clock));
    }
    let is_oclock = after.starts_with("点") && !after.starts_with("点半");
    let goes_on = !is_oclock && MORE.iter().any(|more| after.starts_with(more));
    Some((run.len(), whole, is_unclear || goes_on))
}

fn is_numeral(c: char) -> bool {
    digit(c).is_some() || scale(c).is_some()
}

fn digit(c: char) -> Option<u32> {
    match c {
        '两' | '兩' => Some(2),
        '〇' => Some(0),
        _ => DIGITS
            .chars()
            .position(|digit| digit == c)
            .map(|digit| digit as u32),
    }
}

fn scale(c: char) -> Option<f64> {
    Some(match c {
        '十' => 10.0,
        '百' => 100.0,
        '千' => 1e3,
        '万' | '萬' => 1e4,
        '亿' | '億' => 1e8,
        _ => return None,
    })
}

/// `二十三` is 23, `一百零五` 105, `三千五` 3,500, `三五` 35.
fn value(run: &str) -> (f64, bool) {
    let is_spelt = !run.chars().any(|c| scale(c).is_some());
    let (mut sum, mut section, mut current) = (0.0, 0.0, None::<f64>);
    let mut large = 1.0;
    let (mut last, mut is_unclear, mut behind_zero) = (1.0, false, false);
    for c in run.chars() {
        if let Some(digit) = digit(c).map(f64::from) {
            is_unclear |= !is_spelt && current.is_some_and(|current| current > 0.0);
            behind_zero |= digit == 0.0;
            current = Some(if is_spelt {
                current.unwrap_or_default() * 10.0 + digit
            } else {
                digit
            });
            continue;
        }
        let scale = scale(c).unwrap_or(1.0);
        if scale >= 1e4 {
            let all = section + current.unwrap_or_default();
            sum = if scale > large {
                (sum + all) * scale
            } else {
                sum + all * scale
            };
            large = scale;
            section = 0.0;
        } else {
            section += current.filter(|current| *current > 0.0).unwrap_or(1.0) * scale;
        }
        (current, last, behind_zero) = (None, scale, false);
    }
    let mut rest = current.unwrap_or_default();
    if last >= 100.0 && !behind_zero {
        rest *= last / 10.0;
    }
    // `两三` is two or three.
    let digits: Vec<u32> = run.chars().filter_map(digit).collect();
    let is_about = matches!(digits[..], [one, other] if one > 0 && other > one && other - one <= 2);
    (
        sum + section + rest,
        is_unclear || is_spelt && is_about && digits != [1, 2],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_make_one_number_are_read_as_one() {
        fn check(text: &str, expected: &[f64]) {
            let found = all(text).into_iter().filter(|one| !one.is_unclear);
            let found: Vec<f64> = found.map(|one| one.value).collect();
            assert_eq!(found, expected, "{text}");
        }
        check("二十三", &[23.0]);
        check("一百零五", &[105.0]);
        check("一百二", &[120.0]);
        check("十五度", &[15.0]);
        check("二十三点五度", &[23.5]);
        check("一点五米", &[1.5]);
        check("零点五", &[0.5]);
        check("三万", &[30_000.0]);
        check("两万五千", &[25_000.0]);
        check("三千五", &[3_500.0]);
        check("一亿两千万", &[120_000_000.0]);
        check("二零", &[20.0]);
        check("半小时", &[0.5]);
        check("八点", &[8.0]);
        // What is not one number, or not known.
        check("两三分钟", &[]);
        check("十几度", &[]);
        check("二十多度", &[]);
        check("三分之一", &[]);
        check("八点半", &[]);
        check("八点三十", &[]);
        check("亮一点", &[]);
        check("第一个", &[]);
    }
}
