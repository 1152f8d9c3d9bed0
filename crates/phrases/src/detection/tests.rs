//! Sentences whose language is found, and sentences whose language is unknown.

use super::*;
use Language::{English, French, German, Japanese, SimplifiedChinese, Spanish, TraditionalChinese};

/// Sentences of each language with a table.
const FOUND: [(Language, &[&str]); 7] = [
    (
        English,
        &[
            "What time is it?",
            "Turn on the lamp",
            "Please switch the light off in the kitchen.",
            "Can you tell me a story about a dragon?",
            "I don't want to go to bed yet.",
            "How's the weather today?",
            "My name is Zoë and I am seven years old.",
            "Hello",
            "I am here",
            "Play that song again, but louder!",
            "WHERE IS MY BLUE CAR",
            "It’s too dark in here",
        ],
    ),
    (
        German,
        &[
            "Wie spät ist es?",
            "Mach bitte das Licht aus",
            "Kannst du mir eine Geschichte erzählen?",
            "Ich möchte noch nicht ins Bett gehen.",
            "Wie wird das Wetter morgen?",
            "Schalte die Lampe im Wohnzimmer an.",
            "Warum ist der Himmel blau?",
            "Ich heiße Jonas und bin sieben Jahre alt.",
            "Spiel das Lied noch einmal, aber lauter!",
            "Danke",
            "Wo sind meine Schuhe?",
        ],
    ),
    (
        Spanish,
        &[
            "¿Qué hora es?",
            "Enciende la luz, por favor",
            "Apaga la lámpara de la cocina",
            "¿Puedes contarme un cuento de dragones?",
            "No quiero ir a la cama todavía.",
            "¿Qué tiempo hace hoy?",
            "Me llamo Lucía y tengo siete años.",
            "¿Por qué es azul el cielo?",
            "Pon la canción otra vez, pero más alto",
            "Gracias",
        ],
    ),
    (
        French,
        &[
            "Quelle heure est-il ?",
            "Allume la lumière s’il te plaît",
            "Éteins la lampe de la cuisine",
            "Peux-tu me raconter une histoire de dragons ?",
            "Je ne veux pas encore aller au lit.",
            "Quel temps fait-il aujourd'hui ?",
            "Je m'appelle Chloé et j'ai sept ans.",
            "Pourquoi est-ce que le ciel est bleu ?",
            "Rejoue cette chanson, mais plus fort",
            "Bonjour",
        ],
    ),
    (
        Japanese,
        &[
            "今何時ですか",
            "電気をつけて",
            "ランプを消してください",
            "お話を聞かせて",
            "今日の天気は？",
            "まだ寝たくない",
            "ありがとう",
            "OKです",
        ],
    ),
    (
        SimplifiedChinese,
        &[
            "请开灯",
            "打开 lamp-1 的灯",
            "现在几点了？",
            "给我讲一个故事吧",
            "今天天气怎么样？",
            "我还不想睡觉",
            "为什么天是蓝的？",
            "谢谢你",
        ],
    ),
    (
        TraditionalChinese,
        &[
            "請開燈",
            "打開 lamp-1 的燈",
            "現在幾點了？",
            "給我講一個故事吧",
            "今天天氣怎麼樣？",
            "我還不想睡覺",
            "為什麼天是藍的？",
            "謝謝你",
        ],
    ),
];

/// Sentences of languages without a table.
const UNKNOWN: [(&str, &[&str]); 10] = [
    (
        "Turkish",
        &[
            "Saat kaç?",
            "Lambayı aç lütfen",
            "Mutfaktaki ışığı kapat",
            "Bana bir ejderha masalı anlatır mısın?",
            "Daha yatmak istemiyorum.",
            "Bugün hava nasıl?",
            "Benim adım Elif ve yedi yaşındayım.",
            "Gökyüzü neden mavi?",
            "Merhaba",
            "Sen de an be an in",
        ],
    ),
    (
        "Italian",
        &[
            "Che ore sono?",
            "Accendi la luce, per favore",
            "Spegni la lampada in cucina",
            "Mi puoi raccontare una storia di draghi?",
            "Non voglio ancora andare a letto.",
            "Che tempo fa oggi?",
            "Mi chiamo Lucia e ho sette anni.",
            "Perché il cielo è blu?",
            "Grazie",
            "Come stai? Io sto bene, e tu?",
            "C'è un gatto sulla sedia",
        ],
    ),
    (
        "Portuguese",
        &[
            "Que horas são?",
            "Acende a luz, por favor",
            "Apaga a luz da cozinha",
            "Podes contar-me uma história de dragões?",
            "Ainda não quero ir para a cama.",
            "Como está o tempo hoje?",
            "Eu me chamo Ana e tenho sete anos.",
            "Por que o céu é azul?",
            "Obrigado",
            "Onde está a minha mochila?",
        ],
    ),
    (
        "Dutch",
        &[
            "Hoe laat is het?",
            "Doe de lamp aan, alsjeblieft",
            "Zet het licht in de keuken uit",
            "Kun je me een verhaal over draken vertellen?",
            "Ik wil nog niet naar bed.",
            "Wat voor weer is het vandaag?",
            "Ik heet Anna en ik ben zeven jaar oud.",
            "Waarom is de lucht blauw?",
            "Dank je wel",
            "Was dat de man die hier was?",
        ],
    ),
    (
        "Polish",
        &[
            "Która jest godzina?",
            "Włącz lampę, proszę",
            "Zgaś światło w kuchni",
            "Czy możesz opowiedzieć mi bajkę o smoku?",
            "Nie chcę jeszcze iść do łóżka.",
            "Jaka jest dzisiaj pogoda?",
            "Mam na imię Ania i mam siedem lat.",
            "Dlaczego niebo jest niebieskie?",
            "To do mnie",
        ],
    ),
    (
        "Swedish",
        &[
            "Vad är klockan?",
            "Tänd lampan, tack",
            "Släck ljuset i köket",
            "Kan du berätta en saga om drakar?",
            "Jag vill inte gå och lägga mig.",
            "Hur är vädret idag?",
            "Jag heter Anna och är sju år.",
            "Varför är himlen blå?",
            "Var är min bil? Den var här i natt",
        ],
    ),
    (
        "Indonesian",
        &[
            "Jam berapa sekarang?",
            "Tolong nyalakan lampu",
            "Matikan lampu di dapur",
            "Bisa ceritakan dongeng tentang naga?",
            "Aku belum mau tidur.",
            "Bagaimana cuaca hari ini?",
            "Nama saya Budi dan umur saya tujuh tahun.",
            "Mengapa langit berwarna biru?",
            "Terima kasih",
            "Di mana di an main",
        ],
    ),
    (
        "Danish",
        &[
            "Hvad er klokken?",
            "Tænd lampen, tak",
            "Kan du fortælle mig en historie?",
            "Jeg vil ikke i seng endnu.",
        ],
    ),
    (
        "Catalan and Romanian",
        &[
            "Quina hora és?",
            "Encén el llum, si us plau",
            "Em dic Anna i tinc set anys.",
            "Cât este ceasul?",
            "Aprinde lumina, te rog",
            "Spune-mi o poveste",
        ],
    ),
    // Without a list of words.
    (
        "Finnish, Hungarian, Czech, Vietnamese, Tagalog, Swahili",
        &[
            "Paljonko kello on?",
            "Sytytä valo, kiitos",
            "Ez is az a ház",
            "Kapcsold fel a lámpát",
            "Kolik je hodin?",
            "Rozsviť světlo v kuchyni",
            "Bật đèn lên",
            "Anong oras na?",
            "Buksan mo ang ilaw",
            "Ni saa ngapi?",
        ],
    ),
];

#[test]
fn sentences_of_languages_with_a_table_are_found() {
    for (language, sentences) in FOUND {
        assert!(sentences.len() >= 8, "{language:?}");
        for fallback in Language::ALL {
            // Japanese without kana has the same characters.
            if (language, fallback) == (TraditionalChinese, Japanese) {
                continue;
            }
            for text in sentences {
                let found = detect(text, fallback);
                assert_eq!(found, Some(language), "{fallback:?}: {text}");
            }
        }
    }
}

#[test]
fn sentences_of_other_languages_are_unknown() {
    for (name, sentences) in UNKNOWN {
        for fallback in Language::ALL {
            for text in sentences {
                assert_eq!(detect(text, fallback), None, "{name}, {fallback:?}: {text}");
            }
        }
    }
}

#[test]
fn text_that_does_not_decide_is_unknown() {
    for fallback in Language::ALL {
        for text in [
            "",
            "42",
            "🙂?",
            "OK",
            "ok!",
            "Stop!",
            "no",
            "Lampe",
            "Anna",
            "was",
            "on",
            "la la la",
            "Который час?",
            "몇 시예요",
            "Привет, DJ",
        ] {
            let found = detect(text, fallback);
            assert_eq!(found, None, "{fallback:?}: {text}");
        }
        let found = detect("What does 你好 mean in English?", fallback);
        assert_eq!(found, Some(English), "{fallback:?}");
    }
}

#[test]
fn fallback_decides_between_scripts_of_the_same_characters() {
    let check = |text: &str, fallback, expected| {
        assert_eq!(detect(text, fallback), Some(expected), "{text}");
    };
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

#[test]
fn words_of_lists_can_be_found() {
    for vocabulary in &LATIN {
        for word in vocabulary.words() {
            let mut buffer = [0; MAX_WORD_BYTES];
            assert_eq!(lowercase(word, &mut buffer), Some(word));
            assert_ne!(words::known(word), 0, "{word}");
        }
    }
}
