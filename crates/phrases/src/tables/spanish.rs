//! Spanish.

use crate::phrase::Table;

pub(crate) const SPANISH: Table = Table {
    message_too_long: "Eso fue demasiado largo. Dígalo con menos palabras, por favor.",
    too_many_turns: "Ya hay demasiadas respuestas en curso. Espere un momento y pregunte de nuevo, por favor.",
    text_only: "Aquí no hay un servicio de conversación para sonido. El texto sí se entiende.",
    unanswered: "Nadie responde: aquí no hay un servicio de conversación, o está ocupado. Los servicios \
                 de este dispositivo se pueden seguir usando.",
    answer_cut_off: "La respuesta se cortó aquí. Es posible que lo que pidió se haya hecho de todos modos.",
    answer_restarts: "Me interrumpieron; otra vez:",
    chat_unreachable: "No se puede acceder ahora al servicio de conversación. Si no ocurre nada, pregunte \
                       de nuevo en un momento.",
    picture_over: "La imagen es demasiado grande. Puede tener {kib} KiB.",
    no_picture: "Esto no es una imagen que se pueda mostrar aquí. Se aceptan JPEG, PNG, WebP y GIF, y los \
                 identificadores de imágenes subidas.",

    no_recognition: "No hay reconocimiento de voz configurado: lo que se dice aquí no se puede entender. \
                     El operador define --stt-kind y --stt-endpoint.",
    no_synthesis: "No hay síntesis de voz configurada: las respuestas llegan como texto. El operador \
                   instala espeak-ng, o define --tts-kind y --tts-endpoint.",
    recognition_failed: "No se pudo reconocer la voz: el servicio falla. Inténtelo de nuevo más tarde.",
    synthesis_failed: "Una parte de la respuesta no se puede pronunciar: el servicio falla.",
    bad_audio: "El audio no tiene el formato acordado.",
    audio_too_fast: "El audio llega más rápido de lo que se puede haber grabado. Hay que enviarlo al \
                     ritmo al que se graba.",
    too_many_conversations: "Hay demasiadas conversaciones en este momento. Inténtelo de nuevo más tarde.",
    too_much_said: "Se dijo demasiado. Espere un momento.",

    identity: "Soy el contestador integrado de Switchboard: reglas fijas, ni una persona ni un modelo de \
               lenguaje. Relaciono sus palabras con lo que este dispositivo puede hacer.",
    identity_for: "Respondo por {name} y soy el contestador integrado de Switchboard: reglas fijas, ni \
                   una persona ni un modelo de lenguaje. Relaciono sus palabras con lo que este \
                   dispositivo puede hacer.",
    no_abilities: "Este dispositivo no ha registrado nada que yo pueda hacer.",
    abilities: "Puedo: {abilities}.",
    abilities_and_more: "Puedo: {abilities}; y {more} más.",
    how_to_ask: "Pida las cosas con una orden corta en inglés o en chino, con los números en cifras y los \
                 textos entre comillas.",
    not_understood: "No encontré nada que corresponda a eso.",
    missing_values: "Para eso ({service}) también necesito: {parameters}.",
    no_command: "No se hizo nada. Solo cumplo órdenes claras, para cumplir ahora mismo: {service}.",
    which_service: "¿A cuál se refiere: {services}?",
    which_device: "¿En qué dispositivo: {devices}?",
    greeting: "¡Hola! ¿Qué puedo hacer por usted?",
    thanks: "De nada.",
    memory_noted: "De acuerdo, lo recordaré.",
    memory_quote: "Que yo sepa: {text}",
    book_quote: "«{book}» dice: {text}",
    user_said: "El usuario dijo: «{quote}»",

    yes: "Sí.",
    no: "No.",
    true_value: "sí",
    false_value: "no",
    no_data: "El dispositivo no respondió nada a eso.",
    done: "Hecho.",
    done_with: "Hecho: {result}",
    here_it_is: "Aquí está: {result}.",
    it_is: "Es {result}.",
    failed: "Eso no funcionó: {reason}.",
    failed_without_reason: "Eso no funcionó, y el dispositivo no dio ningún motivo.",
    refused: "El dispositivo no acepta esta orden; no se hizo nada.",
    refused_values: "El dispositivo no acepta estos valores: {parameters}. No se hizo nada.",
    device_unreached: "No pude comunicarme con el dispositivo; no se hizo nada.",
    no_result: "El dispositivo no respondió a tiempo. Es posible que lo haya hecho de todos modos.",

    interrupted: "Lo siento, me interrumpieron. Es posible que lo que pidió ya se haya hecho, por eso no \
                  lo hice otra vez; compruébelo, por favor, y pregunte de nuevo si no fue así.",
    may_be_done: "Lo siento, no pude terminar. Es posible que lo que pidió ya se haya hecho; compruébelo, \
                  por favor, antes de pedirlo de nuevo.",
    services_unreachable: "Lo siento, no puedo acceder a los servicios del dispositivo en este momento; \
                           no se hizo nada.",
    unknown_npc: "Lo siento, no puedo averiguar quién responde por este dispositivo en este momento; no \
                  se hizo nada. Pregunte de nuevo en un momento, por favor.",
    speech_used_up: "Lo siento, el tiempo de conversación hablada de hoy se ha agotado. Hábleme de nuevo \
                     mañana, por favor.",
    talk_used_up: "Lo siento, hoy ya he hablado todo lo que puedo. Vuelva mañana, por favor.",
    unseen_picture: "No puedo ver imágenes.",
    unknown_picture: "Lo siento, no conozco esta imagen: no hay ninguna con este identificador.",
    large_picture: "Lo siento, esta imagen es demasiado grande para mí.",
    unreadable_picture: "Lo siento, no puedo ver la imagen en este momento. Muéstrela de nuevo más tarde, \
                         por favor.",
    no_model: "Lo siento, no se me ocurre una respuesta en este momento. Pregunte de nuevo en un momento, \
               por favor.",
    timed_out: "Lo siento, eso tardó demasiado. Pregunte de nuevo, por favor.",
    lost_thread: "Lo siento, perdí el hilo. Pregunte de nuevo, por favor.",
    no_answer: "Lo siento, no encontré respuesta a eso.",
};
