//! Everyday words of languages in Latin script, and which languages have a word.

use std::{collections::HashMap, sync::LazyLock};

use crate::language::Language;

/// The languages that are compared. Those without a table keep their words from counting for another.
pub(super) const VOCABULARIES: usize = 14;

/// The words of a language.
pub(super) struct Vocabulary {
    /// `None` without a table.
    pub(super) language: Option<Language>,
    /// In lower case. One that ends in an apostrophe begins a longer one.
    words: &'static str,
    /// Its letters beside those of ASCII.
    pub(super) letters: &'static str,
    /// Characters that other languages hardly have.
    pub(super) marks: &'static str,
}

/// Which vocabularies have a word: one bit for each, in their order.
static KNOWN: LazyLock<HashMap<&'static str, u16>> = LazyLock::new(|| {
    let mut known = HashMap::new();
    for (index, vocabulary) in LATIN.iter().enumerate() {
        for word in vocabulary.words() {
            *known.entry(word).or_default() |= 1 << index;
        }
    }
    known
});

/// The vocabularies that have a word, as bits. The word is in lower case.
pub(super) fn known(word: &str) -> u16 {
    let of = |word| KNOWN.get(word).copied().unwrap_or_default();
    let start = || word.find('\'').and_then(|end| word.get(..=end));
    match of(word) {
        0 => start().map_or(0, of),
        found => found,
    }
}

impl Vocabulary {
    pub(super) fn words(&self) -> impl Iterator<Item = &'static str> {
        self.words.split_whitespace()
    }
}

const fn other(words: &'static str) -> Vocabulary {
    Vocabulary {
        language: None,
        words,
        letters: "",
        marks: "",
    }
}

/// The vocabularies. A word of several languages counts for each.
pub(super) static LATIN: [Vocabulary; VOCABULARIES] = [
    Vocabulary {
        language: Some(Language::English),
        words: "a an the is are was were be been being am i i'm i've i'll i'd you you're it it's he he's \
            she she's we we're they they're my your his our their me him her us them this that that's \
            these those here there there's here what what's who who's where where's when why how which can \
            cannot can't could do does doesn't did didn't don't not isn't wasn't will won't would should \
            must may please turn on off of to in into at for from with without about and or but if then \
            so than as by have has had let let's hello hey hi thanks thank yes no tell show say said give \
            take go going come stop play sing put get make want need like love know think see look find \
            call read write help good morning evening night day today tomorrow yesterday time clock now \
            again too very much many more some any all every only just never always up down out open close \
            light lights lamp room song story music weather joke something nothing because while how's \
            kitchen bed door window water sky year years set timer alarm minutes hungry welcome sorry name old big little small new loud louder one two three",
        letters: "",
        marks: "",
    },
    Vocabulary {
        language: Some(Language::German),
        words: "der die das dem den des ein eine einen einem einer eines ist sind war waren wird werden \
            wurde bin bist sein hat haben habe hast hatte ich du er sie es wir ihr mein meine meinen \
            meiner dein deine deinen deiner seine unser unsere mir mich dir dich uns euch ihm ihn ihnen \
            sich was wer wo wann warum wieso wie welche welcher welches wen kann kannst können könnte \
            könntest soll sollst muss musst will willst möchte möchtest darf bitte mach mache machst \
            schalte stell auf aus an ab in im zu zum zur am für mit ohne von vom bei nach über unter und \
            oder aber wenn dass weil denn nicht nichts kein keine keinen nie noch schon sehr viel viele \
            mehr mal hier da dort jetzt heute morgen abend nacht gestern hallo danke ja nein sag sage zeig \
            zeige erzähl erzähle gib geh geht spiel spiele sing stopp stop guten gute gut tag uhr licht \
            zimmer lied geschichte wetter musik spät lauter leiser gern gerne auch nur doch etwas alles \
            gehe hör wecker wieder heißt heiße jahre alt küche bett lampe tür fenster wasser himmel name hi so",
        letters: "äöüß",
        marks: "ß",
    },
    Vocabulary {
        language: Some(Language::Spanish),
        words: "el la los las un una unos unas es son está están estás estoy soy eres somos era fue ser hay \
            yo tú él ella nosotros ellos mi mis tu tus su sus me te se nos le les lo qué que quién dónde \
            cuándo cómo cuál cuánto cuántos por porque para puedes puede puedo quiero quieres tengo tienes \
            tiene hace hacer haz favor enciende apaga pon abre cierra sube baja cuéntame canta toca en de \
            del al a con sin como y e o no sí si más menos muy mucho mucha este esta esto ese esa eso aquí \
            ha he has hola gracias dime di muestra muéstrame dame ve ven buenos buenas días tardes noches \
            día noche hora hoy mañana ayer ahora luz luces música canción cuento tiempo habitación todo \
            todos nada algo también pero cuando donde ya bien gusta llamas llamo años cocina cama mamá papá casa volumen lámpara puerta ventana agua cielo ir todavía otra otro voy vas va vamos \
            stop",
        letters: "áéíóúüñ",
        marks: "ñ¿¡",
    },
    Vocabulary {
        language: Some(Language::French),
        words: "le la les un une des du de au aux est es sont suis était ai as a ont avez avons je tu il \
            elle on nous vous ils elles moi toi lui mon ma mes ton ta tes son sa ses notre votre me te se \
            ce cet cette ces cela ça que qui quoi quel quelle quels quelles où quand pourquoi comment \
            combien parce en y et ou mais donc si ne pas plus rien jamais trop très bien tard peux peut \
            pouvez veux veut voudrais vais vas va fait fais faire dit dis plaît plait allume éteins mets \
            ouvre ferme monte baisse raconte chante à dans sur sous pour par avec sans chez été bonjour \
            bonsoir salut merci oui non montre donne arrête joue heure aujourd'hui demain hier maintenant \
            lumière chambre chanson histoire musique temps tout tous toute aime jour nuit ici là aussi cuisine lit lampe porte fenêtre eau ciel ans \
            encore bonne son maman papa stop c' d' l' j' n' s' m' t' qu'",
        letters: "àâæçéèêëîïôœùûüÿ",
        marks: "œ",
    },
    // Italian.
    other(
        "il lo la i gli le un uno una è sono sei siamo era ho hai ha abbiamo hanno io tu lui lei noi voi \
        loro mio mia miei tuo tua suo sua mi ti si ci vi ne che chi cosa dove quando perché come quale \
        quanto quanti puoi può posso voglio vuoi vorrei per favore con senza di del della dei delle dello \
        dal dalla da a al alla ai in nel nella su sul sulla e o ma se non no sì più meno molto tanto anche \
        questo questa quello quella qui qua oggi domani ieri adesso ora ore ciao buongiorno buonasera \
        buonanotte grazie prego accendi spegni metti apri chiudi alza abbassa dimmi raccontami canta fammi \
        vai fai fa luce luci stanza canzone storia musica tempo tutto niente bene bello mattina sera stop \
        l' d' c' s' m' t' un' cos' dov' com' dell' all' nell' sull' dall' quell'",
    ),
    // Portuguese.
    other(
        "o a os as um uma uns umas é são está estão estou sou somos era foi ser tem tenho eu tu você ele ela \
        nós eles elas meu minha teu tua seu sua me te se nos lhe que quem onde quando como qual quanto \
        quantos porque por para pra pode podes posso quero queres favor ligue liga acenda acende apaga \
        apague desliga desligue abre abra fecha feche conta canta em no na nas do da dos das de ao à aos \
        pelo pela com sem e ou mas não sim mais menos muito muita também este esta isto esse essa isso \
        aqui ali já hoje amanhã ontem agora hora horas olá oi obrigado obrigada bom boa dia tarde noite \
        luz luzes quarto música história tempo tudo nada bem faz fazer diz diga mostra toca vai stop",
    ),
    // Dutch.
    other(
        "de het een is zijn was waren ben bent wordt heeft hebben heb had ik jij je u hij zij ze wij we \
        jullie mijn jouw haar ons onze mij me hem hun dit dat deze die er hier daar wat wie waar wanneer \
        waarom hoe welke kan kun kunt kunnen wil wilt moet mag zal zou alsjeblieft alstublieft doe zet \
        maak geef ga speel vertel zeg laat open sluit aan uit in op te van voor met zonder bij naar om tot \
        over onder en of maar als want niet niets geen nog wel al ook nu heel veel meer vandaag morgen \
        gisteren avond nacht goede goedemorgen hallo dag dank bedankt ja nee licht lamp kamer liedje \
        verhaal verhaaltje weer muziek tijd hoeveel leuk graag toe eens even mooi hi stop",
    ),
    // Swedish.
    other(
        "och att det den en ett är var varit jag du han hon vi ni de dem mig dig oss er min mitt mina din \
        ditt dina sin som på i av för med utan om till från vid inte inget ingen men eller så när vad vem \
        varför hur vilken vilket kan kunde vill ska skulle måste får snälla tack tänd släck sätt öppna \
        stäng spela sjung berätta säg visa ge gå hej god morgon kväll natt idag imorgon igår nu här där \
        mycket mer också bara ja nej lampan ljuset rummet låt saga musik vädret klockan tid har hade heter \
        gillar bra lite alla allt något stop",
    ),
    // Danish and Norwegian.
    other(
        "og at det den en et er var jeg du han hun vi i de mig meg dig deg os oss min mit mitt mine din som \
        på af av for med uden uten om til fra ikke ingen men eller når hvad hva hvem hvor hvorfor hvordan \
        kan kunne vil skal skulle må tak takk tænd tenn sluk slukk lyset åbn åpne luk lukk spil spill \
        fortæl fortell vis giv gi gå hej hei god godt morgen aften kveld nat natt dag nu nå her der meget \
        mye mere også bare ja nej nei har havde hadde hedder heter klokken så stop",
    ),
    // Polish.
    other(
        "i w z na do od po za o u nie tak jest są był była było jestem jesteś być mam masz ma ja ty on ona \
        my wy oni mój moja moje twój twoja się mnie mi ci cię co kto gdzie kiedy dlaczego jak jaki jaka \
        jakie który która ile czy proszę włącz wyłącz zapal zgaś otwórz zamknij opowiedz powiedz pokaż daj \
        zagraj zaśpiewaj możesz mogę chcę chcesz lubię dla ze że to ten ta te tego tu tutaj tam dziś \
        dzisiaj jutro wczoraj teraz bardzo dużo też tylko ale albo bo cześć dzień dobry dobranoc dziękuję \
        światło lampę pokoju piosenkę bajkę pogoda muzykę godzina masz stop",
    ),
    // Turkish.
    other(
        "bir bu şu o ve ile için de da mi mı mu mü ne kim nerede nereye zaman neden niye nasıl hangi kaç ben \
        sen biz siz benim senin bana sana beni seni var yok değil evet hayır lütfen aç kapat yak söndür \
        çal anlat söyle göster ver git gel dur ışığı ışıkları lambayı oda odanın şarkı masal müzik hava \
        saat bugün yarın dün şimdi çok daha en az iyi güzel günaydın merhaba selam teşekkürler teşekkür \
        ederim misin mısın musun müsün istiyorum gibi kadar ama veya adın nedir",
    ),
    // Indonesian and Malay.
    other(
        "yang dan di ke dari untuk dengan ini itu adalah ada tidak bukan jangan saya aku kamu anda dia kita \
        kami mereka apa siapa mana kapan mengapa kenapa bagaimana berapa bisa dapat boleh mau ingin harus \
        akan sudah belum tolong nyalakan matikan buka tutup putar mainkan ceritakan katakan tunjukkan beri \
        pergi lampu kamar lagu cerita musik cuaca jam waktu hari besok kemarin sekarang sangat sekali \
        lebih juga hanya atau tetapi tapi karena halo selamat pagi siang sore malam terima kasih ya nama \
        namamu baik suka",
    ),
    // Catalan.
    other(
        "el la els les un una és són estic soc tinc tens jo tu ell ella meu meva què qui on quan com per \
        quina quin pots puc vull si us plau encén apaga obre tanca amb de del al i o no sí més molt també \
        això aquest aquesta aquí avui demà ara hora hola bon bona dia nit gràcies llum música cançó temps \
        digues explica stop l' d' s' m' t' n'",
    ),
    // Romanian.
    other(
        "și în pe cu fără din pentru nu da este sunt am ai are eu noi voi ei \
        mea tău ta mă te se ce cine unde când cum care cât poți pot vreau rog aprinde stinge deschide \
        închide spune arată dă lumina camera poveste muzică ora azi mâine acum foarte mult mai bună ziua \
        noapte mulțumesc stop",
    ),
];
