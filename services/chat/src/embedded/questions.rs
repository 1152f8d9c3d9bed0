//! Whether a clause asks, or orders in the form of a question.
//! Never: a question taken for an order because it is a polite one.

use super::{
    clauses::{Asks, Clause, is_verb},
    concepts::{ACTS, Kind},
};

const QUESTIONS: &[&str] = &[
    "what", "whats", "when", "whens", "how", "hows", "which", "who", "whos", "whose", "where",
    "wheres", "why",
];
const YES_OR_NO: &[&str] = &[
    "is", "are", "am", "does", "do", "did", "has", "have", "had", "was", "were", "isnt", "arent",
    "doesnt", "didnt", "hasnt", "havent", "hadnt", "wasnt", "werent", "cant", "couldnt", "wont",
    "wouldnt", "shouldnt", "can", "could", "would", "will", "should", "shall", "may", "might",
    "must",
];
const POLITE: &[&str] = &["can", "could", "would", "will"];
const WHO_IS_ASKED: &[&str] = &["you", "someone", "somebody", "anyone", "anybody"];
const WHO_ASKS: &[&str] = &["i", "we"];
const WISHES: &[&str] = &["have", "get", "hear", "see", "listen"];
const CHECKS: &[&str] = &["check", "verify", "see", "confirm"];
const IS: &[&str] = &[
    "is", "are", "was", "were", "has", "had", "been", "isnt", "arent", "wasnt",
];
/// What a statement begins with.
const SUBJECTS: &[&str] = &[
    "the",
    "my",
    "our",
    "your",
    "this",
    "that",
    "it",
    "its",
    "there",
    "i",
    "he",
    "she",
    "we",
    "they",
    "somebody",
    "someone",
    "everybody",
    "everyone",
    "you",
    "a",
    "an",
];
/// They make a question of what was said before.
const CONFIRMS: &[&str] = &[
    "right",
    "correct",
    "isnt it",
    "is it",
    "arent they",
    "yes",
    "huh",
];
const CONFIRMS_CHINESE: &[&str] = &["对吗", "是吗", "对吧", "是吧", "对不对", "是不是", "對嗎"];
const PEOPLE_CHINESE: &[&str] = &["我", "他", "她", "有人", "它"];
/// In any place of a clause.
const WITHIN: &[&str] = &["know", "whether", "wonder", "wondering", "who", "whose"];
/// What makes an order of a sentence in front of it.
const TAILS: &[&str] = &[
    "ok",
    "okay",
    "please",
    "alright",
    "will you",
    "would you",
    "can you",
    "could you",
];
const ASKS_CHINESE: &[&str] = &[
    "什么",
    "什麼",
    "几",
    "幾",
    "多少",
    "怎么",
    "怎麼",
    "哪",
    "多远",
    "多高",
    "多大",
    "告诉我",
    "告訴我",
    "如何",
    "谁",
    "誰",
    "为何",
    "何时",
    "多快",
    "多热",
    "多冷",
    "知道",
    "想问",
    "请问",
    "請問",
];
const YES_OR_NO_CHINESE: &[&str] = &["吗", "嗎", "是否", "了没", "着没", "还是", "還是"];
/// What is so, rather than what is to be done.
const STATES: &[&str] = &[
    "开着", "開著", "关着", "關著", "亮着", "锁着", "鎖著", "着吗", "著嗎", "过吗", "過嗎",
];
const POLITE_CHINESE: &[&str] = &["能不能", "可不可以", "可否", "能否", "可以", "能"];
const WEAKLY_POLITE: &[&str] = &["请", "請", "帮", "幫", "麻烦", "麻煩", "劳驾"];
const LOOKS: &[&str] = &["看到", "看见", "看看", "看一", "查", "听到"];
const TAILS_CHINESE: &[&str] = &[
    "好吗",
    "好嗎",
    "好不好",
    "行吗",
    "行嗎",
    "行不行",
    "可以吗",
    "可以嗎",
    "可不可以",
];
const MARKS: [char; 4] = ['?', '？', '。', '！'];

pub(super) fn asks(clause: &Clause<'_>) -> Asks {
    if clause.text.chars().any(super::words::is_chinese) {
        chinese(clause)
    } else {
        english(clause)
    }
}

fn english(clause: &Clause<'_>) -> Asks {
    let words = clause.meant();
    let [first, second, third] = [0, 1, 2].map(|at| words.get(at).copied().unwrap_or_default());
    let tells = words.windows(2).any(|pair| pair == ["tell", "me"])
        || words.iter().any(|word| WITHIN.contains(word));
    // `Don't tell me` asks for nothing.
    let denies =
        matches!(first, "dont" | "never") && second != "you" || (first, second) == ("do", "not");
    if denies {
        return Asks::No;
    }
    if tells {
        return Asks::Something;
    }
    let is_polite = POLITE.contains(&first)
        && (WHO_IS_ASKED.contains(&second) && third != "have"
            || WHO_ASKS.contains(&second) && WISHES.contains(&third));
    if is_polite || TAILS.contains(&clause.words().join(" ").as_str()) {
        return Asks::Politely;
    }
    // `Do turn on the light` orders.
    let stressed = matches!(first, "do" | "have" | "must" | "should" | "can")
        && (second == "not" || first == "do" && is_deed(clause, second));
    if YES_OR_NO.contains(&first) && !stressed {
        return Asks::YesOrNo;
    }
    let marked = clause.text.ends_with(['?', '？']);
    let is_so = words.iter().any(|word| IS.contains(word));
    if QUESTIONS.contains(&first) || CHECKS.contains(&first) && is_so || marked && !words.is_empty()
    {
        return Asks::Something;
    }
    let did = second.ends_with("ed")
        && (is_deed(clause, second) || matches!(second, "turned" | "switched"));
    if SUBJECTS.contains(&first) && (is_so || did) {
        return Asks::States;
    }
    Asks::No
}

fn is_deed(clause: &Clause<'_>, word: &str) -> bool {
    let mut tokens = clause.tokens.iter();
    tokens.any(|token| super::clauses::english(token) == Some(word) && is_verb(token))
}

fn chinese(clause: &Clause<'_>) -> Asks {
    let whole = clause.text.trim().trim_end_matches(MARKS);
    let has = |list: &[&str]| list.iter().any(|part| whole.contains(part));
    let begins = |list: &[&str]| {
        let meant = clause.meant_chinese();
        list.iter()
            .any(|part| meant.starts_with(part) || whole.starts_with(part))
    };
    if has(ASKS_CHINESE) {
        return Asks::Something;
    }
    let tail = whole.trim_end_matches(['呢', '啊', '呀', '了']);
    let is_yes_or_no = has(YES_OR_NO_CHINESE)
        || is_doubled(whole)
        || tail.ends_with(['没', '沒', '么'])
        || tail.ends_with("没有");
    let by_tail = TAILS_CHINESE.iter().any(|part| tail.ends_with(part)) && !whole.starts_with('我');
    let is_polite =
        begins(POLITE_CHINESE) && !has(LOOKS) || by_tail || begins(WEAKLY_POLITE) && !is_yes_or_no;
    match () {
        () if has(STATES) => Asks::YesOrNo,
        () if is_polite => Asks::Politely,
        () if is_yes_or_no => Asks::YesOrNo,
        () if clause.text.ends_with(['?', '？']) => Asks::Something,
        () if states_chinese(clause, whole) => Asks::States,
        () => Asks::No,
    }
}

/// `我开灯了`, `灯开了`
fn states_chinese(clause: &Clause<'_>, whole: &str) -> bool {
    let wishes = ["要", "想", "让", "叫", "把", "将", "给", "别", "不"];
    let first = clause.tokens.first().into_iter();
    let mut meanings = first.flat_map(|token| &token.meanings);
    let is_person = PEOPLE_CHINESE.iter().any(|word| whole.starts_with(word));
    let is_thing = meanings.any(|meaning| meaning.kind() == Kind::Topic && !ACTS.contains(meaning));
    whole.ends_with('了')
        && (is_person || is_thing)
        && !wishes.iter().any(|word| whole.contains(word))
}

/// Whether it asks if what was said before is so.
pub(super) fn confirms(clause: &Clause<'_>) -> bool {
    let said = clause.words().join(" ");
    let text = clause.text.trim().trim_end_matches(MARKS);
    clause.is_question() && (CONFIRMS.contains(&said.as_str()) || CONFIRMS_CHINESE.contains(&text))
}

/// `开不开`, `有没有`: a word, and once more behind `not`.
fn is_doubled(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let mut threes = chars.windows(3);
    threes.any(|three| {
        matches!(three, [one, '不' | '没' | '沒', other] if one == other && super::words::is_chinese(*one))
    })
}
