//! German.

use crate::phrase::Table;

pub(crate) const GERMAN: Table = Table {
    message_too_long: "Das war zu lang. Bitte mit weniger Worten sagen.",
    too_many_turns: "Es wird schon zu viel beantwortet. Bitte einen Moment warten und noch einmal fragen.",
    text_only: "Hier gibt es keinen Gesprächsdienst für Ton. Text wird verstanden.",
    unanswered: "Niemand antwortet: Hier gibt es keinen Gesprächsdienst, oder er ist beschäftigt. Die \
                 Dienste dieses Geräts können weiterhin aufgerufen werden.",
    answer_cut_off: "Hier ist die Antwort abgebrochen. Das Gewünschte wurde vielleicht trotzdem getan.",
    answer_restarts: "Ich wurde unterbrochen; noch einmal:",
    chat_unreachable: "Der Gesprächsdienst ist gerade nicht erreichbar. Falls nichts geschieht, bitte \
                       gleich noch einmal fragen.",
    picture_over: "Das Bild ist zu groß. Es darf {kib} KiB haben.",
    no_picture: "Das ist kein Bild, das hier gezeigt werden kann. Möglich sind JPEG, PNG, WebP und GIF \
                 sowie die Kennungen hochgeladener Bilder.",

    no_recognition: "Es ist keine Spracherkennung eingerichtet: Gesprochenes wird hier nicht verstanden. \
                     Der Betreiber setzt --stt-kind und --stt-endpoint.",
    no_synthesis: "Es ist keine Sprachausgabe eingerichtet: Antworten kommen als Text. Der Betreiber \
                   installiert espeak-ng oder setzt --tts-kind und --tts-endpoint.",
    recognition_failed: "Das Gesprochene konnte nicht erkannt werden: Der Dienst ist gestört. Bitte \
                         später noch einmal versuchen.",
    synthesis_failed: "Ein Teil der Antwort kann nicht gesprochen werden: Der Dienst ist gestört.",
    bad_audio: "Der Ton hat nicht das vereinbarte Format.",
    audio_too_fast: "Der Ton kommt schneller an, als er aufgenommen worden sein kann. Er ist so schnell \
                     zu senden, wie er aufgenommen wird.",
    too_many_conversations: "Im Moment gibt es zu viele Gespräche. Bitte später noch einmal versuchen.",
    too_much_said: "Es wurde zu viel gesagt. Bitte einen Moment warten.",

    identity: "Ich bin der eingebaute Antworter von Switchboard: feste Regeln, kein Mensch und kein \
               Sprachmodell. Ich ordne Worte dem zu, was dieses Gerät kann.",
    identity_for: "Ich antworte für {name} und bin der eingebaute Antworter von Switchboard: feste \
                   Regeln, kein Mensch und kein Sprachmodell. Ich ordne Worte dem zu, was dieses Gerät \
                   kann.",
    no_abilities: "Dieses Gerät hat nichts angemeldet, was ich tun könnte.",
    abilities: "Ich kann: {abilities}.",
    abilities_and_more: "Ich kann: {abilities}; und {more} weitere.",
    how_to_ask: "Bitte mit einem kurzen Befehl auf Englisch oder Chinesisch fragen, Zahlen in Ziffern und \
                 Texte in Anführungszeichen.",
    not_understood: "Ich habe nichts gefunden, was dazu passt.",
    missing_values: "Dafür ({service}) brauche ich noch: {parameters}.",
    no_command: "Es wurde nichts getan. Ich führe nur klare Befehle aus, die sofort gelten: {service}.",
    which_service: "Was ist gemeint: {services}?",
    which_device: "Auf welchem Gerät: {devices}?",
    greeting: "Hallo! Was kann ich tun?",
    thanks: "Gern geschehen.",
    memory_noted: "In Ordnung, das merke ich mir.",
    memory_quote: "Soviel ich weiß: {text}",
    book_quote: "In „{book}“ steht: {text}",
    user_said: "Der Benutzer sagte: „{quote}“",

    yes: "Ja.",
    no: "Nein.",
    true_value: "ja",
    false_value: "nein",
    no_data: "Das Gerät hat darauf nichts geantwortet.",
    done: "Erledigt.",
    done_with: "Erledigt: {result}",
    here_it_is: "Hier ist es: {result}.",
    it_is: "Es ist {result}.",
    failed: "Das hat nicht geklappt: {reason}.",
    failed_without_reason: "Das hat nicht geklappt, und das Gerät hat keinen Grund genannt.",
    refused: "Das Gerät nimmt diesen Befehl nicht an; es wurde nichts getan.",
    refused_values: "Das Gerät nimmt diese Werte nicht an: {parameters}. Es wurde nichts getan.",
    device_unreached: "Ich konnte das Gerät dafür nicht erreichen; es wurde nichts getan.",
    no_result: "Das Gerät hat nicht rechtzeitig geantwortet. Vielleicht hat es das trotzdem getan.",

    interrupted: "Entschuldigung, ich wurde unterbrochen. Das Gewünschte wurde vielleicht schon getan, \
                  deshalb habe ich es nicht noch einmal getan; bitte nachsehen und noch einmal fragen, \
                  falls nicht.",
    may_be_done: "Entschuldigung, ich bin nicht fertig geworden. Das Gewünschte wurde vielleicht schon \
                  getan; bitte nachsehen, bevor noch einmal gefragt wird.",
    services_unreachable: "Entschuldigung, ich kann die Dienste des Geräts gerade nicht erreichen; es \
                           wurde nichts getan.",
    unknown_npc: "Entschuldigung, ich kann gerade nicht nachsehen, wer für dieses Gerät antwortet; es \
                  wurde nichts getan. Bitte gleich noch einmal fragen.",
    speech_used_up: "Entschuldigung, die Sprechzeit für heute ist aufgebraucht. Bitte morgen wieder mit \
                     mir sprechen.",
    talk_used_up: "Entschuldigung, für heute habe ich so viel gesprochen, wie ich darf. Bitte morgen \
                   wiederkommen.",
    unseen_picture: "Ich kann keine Bilder sehen.",
    unknown_picture: "Entschuldigung, ich kenne dieses Bild nicht: Es gibt keines mit dieser Kennung.",
    large_picture: "Entschuldigung, dieses Bild ist zu groß für mich.",
    unreadable_picture: "Entschuldigung, ich kann das Bild gerade nicht ansehen. Bitte später noch einmal \
                         zeigen.",
    no_model: "Entschuldigung, mir fällt gerade keine Antwort ein. Bitte gleich noch einmal fragen.",
    timed_out: "Entschuldigung, das hat zu lange gedauert. Bitte noch einmal fragen.",
    lost_thread: "Entschuldigung, ich habe den Faden verloren. Bitte noch einmal fragen.",
    no_answer: "Entschuldigung, darauf habe ich keine Antwort gefunden.",
};
