//! The language of a short text: by its script, and by everyday words where languages share one.

use crate::language::Language;

/// Characters of a text that are looked at. Bounds the work for a long message.
const MAX_CHARS: usize = 1_000;

/// Characters of everyday words that only this Chinese script has, and Japanese has not.
const SIMPLIFIED: &str = "这个们说时对为吗么请几开关灯还过头爱听电话问题谢现让给儿东车门见气热风长边间样动从认识觉刚执设图钟务连张产书写语";
/// The same characters in the other script.
const TRADITIONAL: &str = "這個們說時對為嗎麼請幾開關燈還過頭愛聽電話問題謝現讓給兒東車門見氣熱風長邊間樣動從認識覺剛執設圖鐘務連張產書寫語";

/// Everyday words of languages in Latin script. A word of two languages counts for both.
const WORDS: [(Language, &str); 4] = [
    (
        Language::English,
        "a an the is are was were be been i i'm you it it's he she we they my your me what what's who \
         where when why how which can cannot could do does did don't not will would please turn on off of \
         to in at for with and or this that there have has had hello thanks thank yes no tell show say \
         give go stop play good morning so if again am hi",
    ),
    (
        Language::German,
        "der die das dem den des ein eine einen ist sind war wird wurde ich du er sie es wir ihr mein \
         meine dein mir mich dir was wer wo wann warum wie welche kann kannst könnte bitte mach mache \
         schalte auf aus an in zu im am für mit von und oder nicht nichts kein keine hat haben noch hier \
         hallo danke ja nein sag zeig gib geh stopp spiel guten morgen spät licht stop will hi",
    ),
    (
        Language::Spanish,
        "el la los las un una es son está estás soy yo tú él ella mi tu me se lo te qué que quién dónde \
         cuándo cómo cuál puedes puede por favor enciende apaga en de del al a para con como y o no hay \
         más esta este eso ha hola gracias sí dime di muestra dame ve toca buenos buenas días hora luz \
         stop",
    ),
    (
        Language::French,
        "le la les un une des du de est sont était je j'ai tu il elle on nous vous mon ma mes ton me moi \
         se que qui quoi quel quelle où quand pourquoi comment en y a ce cet cette cela n'a n'est c'était \
         c'est d'une l'a plus tard trop peux peut pouvez s'il plaît allume éteins à au aux dans pour par \
         avec et ou ne pas rien été bonjour salut merci oui non dis montre donne va arrête joue heure \
         lumière stop",
    ),
];

/// Characters that only one of these languages uses.
const LETTERS: [(Language, &str); 3] = [
    (Language::German, "äöß"),
    (Language::Spanish, "ñ¿¡áíóú"),
    (Language::French, "çœêèàùîû"),
];

/// Which script the letters of a text have.
#[derive(Default)]
struct Letters {
    han: usize,
    kana: usize,
    simplified: usize,
    traditional: usize,
    has_latin: bool,
}

/// The language of a text; the fallback where the text does not decide.
pub(crate) fn detect(text: &str, fallback: Language) -> Language {
    let end = text.char_indices().nth(MAX_CHARS);
    let text = end.map_or(text, |(end, _)| text.split_at(end).0);
    let letters = Letters::count(text);
    let latin_words = words(text)
        .filter(|word| word.chars().any(is_latin))
        .count();
    if letters.han + letters.kana > 0 && letters.han + letters.kana >= latin_words {
        letters.east_asian(fallback)
    } else if letters.has_latin {
        latin(text, fallback)
    } else {
        fallback
    }
}

impl Letters {
    fn count(text: &str) -> Self {
        let mut letters = Self::default();
        for c in text.chars() {
            letters.han += usize::from(is_han(c));
            letters.kana += usize::from(matches!(c, '\u{3040}'..='\u{30ff}'));
            letters.simplified += usize::from(SIMPLIFIED.contains(c));
            letters.traditional += usize::from(TRADITIONAL.contains(c));
            letters.has_latin |= is_latin(c);
        }
        letters
    }

    /// Japanese may have no kana, and many Chinese words are the same in both scripts.
    fn east_asian(&self, fallback: Language) -> Language {
        use Language::{Japanese, SimplifiedChinese, TraditionalChinese};
        if self.kana > 0 || (fallback == Japanese && self.simplified == 0) {
            return Japanese;
        }
        match self.simplified.cmp(&self.traditional) {
            std::cmp::Ordering::Greater => SimplifiedChinese,
            std::cmp::Ordering::Less => TraditionalChinese,
            std::cmp::Ordering::Equal if fallback == TraditionalChinese => fallback,
            std::cmp::Ordering::Equal => SimplifiedChinese,
        }
    }
}

/// The language whose words and letters occur most. Where several do, or none, the fallback if it has
/// Latin script, else English.
fn latin(text: &str, fallback: Language) -> Language {
    let text = text.to_lowercase().replace('’', "'");
    let score = |(language, list): (Language, &str)| {
        let known = words(&text).filter(|word| list.split_whitespace().any(|known| known == *word));
        let letters = LETTERS.iter().filter(|(other, _)| *other == language);
        let letters = letters.map(|(_, own)| text.chars().filter(|c| own.contains(*c)).count());
        // Languages without a list share letters with these.
        let score = match known.count() {
            0 => 0,
            known => known + letters.sum::<usize>(),
        };
        (score, language)
    };
    let scores = WORDS.map(score);
    let best = scores
        .iter()
        .map(|(score, _)| *score)
        .max()
        .unwrap_or_default();
    let mut winners = scores.iter().filter(|(score, _)| *score == best);
    let is_latin = WORDS.iter().any(|(language, _)| *language == fallback);
    match (winners.next(), winners.next()) {
        (Some((1.., winner)), None) => *winner,
        _ if is_latin => fallback,
        _ => Language::English,
    }
}

/// The words, with apostrophes as a part of them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '’');
    words.filter(|word| !word.is_empty())
}

const fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '〇')
}

/// Whether it is a letter of Latin script.
const fn is_latin(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '\u{c0}'..='\u{24f}')
}

#[cfg(test)]
mod tests {
    use super::{
        Language::{
            English, French, German, Japanese, SimplifiedChinese, Spanish, TraditionalChinese,
        },
        *,
    };

    #[track_caller]
    fn check(text: &str, fallback: Language, expected: Language) {
        assert_eq!(detect(text, fallback), expected, "{text}");
    }

    #[test]
    fn words_decide_the_language() {
        for fallback in Language::ALL {
            check("What time is it?", fallback, English);
            check("Turn on the lamp", fallback, English);
            check("Hello", fallback, English);
            check("I am here", fallback, English);
            check("What does 你好 mean in English?", fallback, English);
            check("Wie spät ist es?", fallback, German);
            check("Mach bitte das Licht aus", fallback, German);
            check("¿Qué hora es?", fallback, Spanish);
            check("Enciende la luz, por favor", fallback, Spanish);
            check("Quelle heure est-il ?", fallback, French);
            check("Allume la lumière s’il te plaît", fallback, French);
            check("今何時ですか", fallback, Japanese);
            check("请开灯", fallback, SimplifiedChinese);
            check("打开 lamp-1 的灯", fallback, SimplifiedChinese);
        }
        check("請開燈", SimplifiedChinese, TraditionalChinese);
        check("請開燈", English, TraditionalChinese);
    }

    #[test]
    fn fallback_decides_where_words_do_not() {
        for fallback in Language::ALL {
            for text in ["", "42", "🙂?", "Который час?", "몇 시예요"] {
                check(text, fallback, fallback);
            }
        }
        check("Lampe", German, German);
        check("Stop!", German, German);
        check("Stop!", Japanese, English);
        check("Lampe", English, English);
        check("Lampe", SimplifiedChinese, English);
        check("大小", TraditionalChinese, TraditionalChinese);
        check("大小", English, SimplifiedChinese);
        check("時間", Japanese, Japanese);
        check(&"好".repeat(100_000), German, SimplifiedChinese);
    }

    #[test]
    fn characters_of_one_script_are_not_in_the_other() {
        assert_eq!(SIMPLIFIED.chars().count(), TRADITIONAL.chars().count());
        assert!(!SIMPLIFIED.chars().any(|c| TRADITIONAL.contains(c)));
    }
}
