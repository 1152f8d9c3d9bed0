//! English.

use crate::phrase::Table;

pub(crate) const ENGLISH: Table = Table {
    message_too_long: "That was too long. Please say it in fewer words.",
    too_many_turns: "Too much is being answered already. Please wait a moment and ask again.",
    text_only: "There is no conversation service for sound here. Text is understood.",
    unanswered: "Nobody answers: there is no conversation service here, or it is busy. Services of \
                 this device can still be called.",
    answer_cut_off: "The answer broke off here. What you asked for may have been done all the same.",
    answer_restarts: "I was interrupted; once more:",
    chat_unreachable: "The conversation service cannot be reached now. Should nothing happen, please \
                       ask again in a moment.",
    picture_over: "The picture is too large. It may have {kib} KiB.",
    no_picture: "This is no picture that can be shown here. JPEG, PNG, WebP and GIF can, and the ids \
                 of pictures that were uploaded.",

    no_recognition: "No speech recognition is configured: what is said here cannot be understood. The \
                     operator sets --stt-kind and --stt-endpoint.",
    no_synthesis: "No speech synthesis is configured: answers arrive as text. The operator installs \
                   espeak-ng, or sets --tts-kind and --tts-endpoint.",
    recognition_failed: "The speech could not be recognised: the service fails. Try again later.",
    synthesis_failed: "A part of the answer cannot be spoken: the service fails.",
    bad_audio: "The audio is not in the negotiated format.",
    audio_too_fast: "The audio arrives faster than it can have been recorded. Send it at the rate at \
                     which it is recorded.",
    too_many_conversations: "There are too many conversations at the moment. Try again later.",
    too_much_said: "Too much was said. Wait a moment.",

    identity: "I am Switchboard's embedded responder: fixed rules, not a person and no language model. \
               I match your words to what this device can do.",
    identity_for: "I answer for {name}, and I am Switchboard's embedded responder: fixed rules, not a \
                   person and no language model. I match your words to what this device can do.",
    no_abilities: "This device has registered nothing that I could do.",
    abilities: "I can: {abilities}.",
    abilities_and_more: "I can: {abilities}; and {more} more.",
    how_to_ask: "Ask with a short command, numbers in digits and texts in quotation marks.",
    not_understood: "I found nothing that fits this.",
    missing_values: "For that ({service}) I also need: {parameters}.",
    no_command: "Nothing was done. I only follow plain commands, to be done at once: {service}.",
    which_service: "Which one do you mean: {services}?",
    which_device: "On which device: {devices}?",
    greeting: "Hello! What can I do for you?",
    thanks: "You are welcome.",
    memory_noted: "All right, I will remember that.",
    memory_quote: "As far as I know: {text}",
    book_quote: "{book} says: {text}",
    user_said: "The user said: “{quote}”",

    yes: "Yes.",
    no: "No.",
    true_value: "yes",
    false_value: "no",
    no_data: "The device gave no answer to that.",
    done: "Done.",
    done_with: "Done: {result}",
    here_it_is: "Here it is: {result}.",
    it_is: "It is {result}.",
    failed: "That did not work: {reason}.",
    failed_without_reason: "That did not work, and the device gave no reason.",
    refused: "The device does not accept this command; nothing was done.",
    refused_values: "The device does not accept these values: {parameters}. Nothing was done.",
    device_unreached: "I could not reach the device for that; nothing was done.",
    no_result: "The device gave no answer in time. It may have done it all the same.",

    interrupted: "Sorry, I was interrupted. What you asked for may have been done already, so I did \
                  not do it again; please check, and ask again if it was not.",
    may_be_done: "Sorry, I could not finish. What you asked for may have been done already; please \
                  check before you ask for it again.",
    services_unreachable: "Sorry, I cannot reach the device's services at the moment; nothing was done.",
    unknown_npc: "Sorry, I cannot look up who answers for this device at the moment; nothing was done. \
                  Please ask again in a moment.",
    speech_used_up: "Sorry, the time for speaking is used up for today. Please speak to me again \
                     tomorrow.",
    talk_used_up: "Sorry, I have talked as much as I may today. Please come back tomorrow.",
    unseen_picture: "I cannot see pictures.",
    unknown_picture: "Sorry, I do not know this picture: there is none with this id.",
    large_picture: "Sorry, this picture is too large for me.",
    unreadable_picture: "Sorry, I cannot look at the picture at the moment. Please show it again later.",
    no_model: "Sorry, I cannot think of an answer at the moment. Please ask again in a moment.",
    timed_out: "Sorry, that took too long. Please ask again.",
    lost_thread: "Sorry, I lost the thread. Please ask again.",
    no_answer: "Sorry, I found no answer to that.",
};
