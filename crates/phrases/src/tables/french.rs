//! French.

use crate::phrase::Table;

pub(crate) const FRENCH: Table = Table {
    message_too_long: "C'était trop long. Veuillez le dire en moins de mots.",
    too_many_turns: "Trop de réponses sont déjà en cours. Veuillez patienter un instant et redemander.",
    text_only: "Il n'y a pas de service de conversation pour le son ici. Le texte est compris.",
    unanswered: "Personne ne répond\u{a0}: il n'y a pas de service de conversation ici, ou il est occupé. \
                 Les services de cet appareil peuvent toujours être appelés.",
    answer_cut_off: "La réponse s'est interrompue ici. Ce que vous avez demandé a peut-être été fait malgré \
                     tout.",
    answer_restarts: "J'ai été interrompu\u{a0}; je recommence\u{a0}:",
    chat_unreachable: "Le service de conversation est injoignable pour le moment. S'il ne se passe rien, \
                       veuillez redemander dans un instant.",
    picture_over: "L'image est trop grande. Elle peut faire {kib} Kio.",
    no_picture: "Ce n'est pas une image qui peut être montrée ici. Les formats JPEG, PNG, WebP et GIF le \
                 peuvent, ainsi que les identifiants d'images téléversées.",

    no_recognition: "Aucune reconnaissance vocale n'est configurée\u{a0}: ce qui est dit ici ne peut pas \
                     être compris. L'opérateur définit --stt-kind et --stt-endpoint.",
    no_synthesis: "Aucune synthèse vocale n'est configurée\u{a0}: les réponses arrivent sous forme de \
                   texte. L'opérateur installe espeak-ng, ou définit --tts-kind et --tts-endpoint.",
    recognition_failed: "La parole n'a pas pu être reconnue\u{a0}: le service est en panne. Réessayez plus \
                         tard.",
    synthesis_failed: "Une partie de la réponse ne peut pas être prononcée\u{a0}: le service est en panne.",
    bad_audio: "Le son n'a pas le format convenu.",
    audio_too_fast: "Le son arrive plus vite qu'il n'a pu être enregistré. Il faut l'envoyer au rythme de \
                     l'enregistrement.",
    too_many_conversations: "Il y a trop de conversations en ce moment. Réessayez plus tard.",
    too_much_said: "Trop de choses ont été dites. Attendez un instant.",

    identity: "Je suis le répondeur intégré de Switchboard\u{a0}: des règles fixes, ni une personne ni un \
               modèle de langage. Je rapproche vos mots de ce que cet appareil sait faire.",
    identity_for: "Je réponds pour {name} et je suis le répondeur intégré de Switchboard\u{a0}: des règles \
                   fixes, ni une personne ni un modèle de langage. Je rapproche vos mots de ce que cet \
                   appareil sait faire.",
    no_abilities: "Cet appareil n'a rien enregistré que je puisse faire.",
    abilities: "Je peux\u{a0}: {abilities}.",
    abilities_and_more: "Je peux\u{a0}: {abilities}\u{a0}; et {more} de plus.",
    how_to_ask: "Demandez avec un ordre court en anglais ou en chinois, les nombres en chiffres et les \
                 textes entre guillemets.",
    not_understood: "Je n'ai rien trouvé qui corresponde à cela.",
    missing_values: "Pour cela ({service}), il me faut encore\u{a0}: {parameters}.",
    no_command: "Rien n'a été fait. Je n'exécute que des ordres clairs, à faire tout de suite\u{a0}: {service}.",
    which_service: "De quoi parlez-vous\u{a0}: {services}\u{a0}?",
    which_device: "Sur quel appareil\u{a0}: {devices}\u{a0}?",
    greeting: "Bonjour\u{a0}! Que puis-je faire pour vous\u{a0}?",
    thanks: "Je vous en prie.",
    memory_noted: "D'accord, je m'en souviendrai.",
    memory_quote: "Pour autant que je sache\u{a0}: {text}",
    book_quote: "«\u{a0}{book}\u{a0}» dit\u{a0}: {text}",
    user_said: "L'utilisateur a dit\u{a0}: «\u{a0}{quote}\u{a0}»",

    yes: "Oui.",
    no: "Non.",
    true_value: "oui",
    false_value: "non",
    no_data: "L'appareil n'a rien répondu à cela.",
    done: "C'est fait.",
    done_with: "C'est fait\u{a0}: {result}",
    here_it_is: "Voici\u{a0}: {result}.",
    it_is: "C'est {result}.",
    failed: "Cela n'a pas marché\u{a0}: {reason}.",
    failed_without_reason: "Cela n'a pas marché, et l'appareil n'a pas donné de raison.",
    refused: "L'appareil n'accepte pas cet ordre\u{a0}; rien n'a été fait.",
    refused_values: "L'appareil n'accepte pas ces valeurs\u{a0}: {parameters}. Rien n'a été fait.",
    device_unreached: "Je n'ai pas pu joindre l'appareil\u{a0}; rien n'a été fait.",
    no_result: "L'appareil n'a pas répondu à temps. Il l'a peut-être fait malgré tout.",

    interrupted: "Désolé, j'ai été interrompu. Ce que vous avez demandé a peut-être déjà été fait, je ne \
                  l'ai donc pas refait\u{a0}; veuillez vérifier, et redemander si ce n'est pas le cas.",
    may_be_done: "Désolé, je n'ai pas pu terminer. Ce que vous avez demandé a peut-être déjà été fait\u{a0}; \
                  veuillez vérifier avant de le redemander.",
    services_unreachable: "Désolé, je ne peux pas joindre les services de l'appareil pour le moment\u{a0}; \
                           rien n'a été fait.",
    unknown_npc: "Désolé, je ne peux pas savoir qui répond pour cet appareil pour le moment\u{a0}; rien \
                  n'a été fait. Veuillez redemander dans un instant.",
    speech_used_up: "Désolé, le temps de parole est épuisé pour aujourd'hui. Reparlez-moi demain.",
    talk_used_up: "Désolé, j'ai parlé autant que je le peux aujourd'hui. Revenez demain.",
    unseen_picture: "Je ne peux pas voir les images.",
    unknown_picture: "Désolé, je ne connais pas cette image\u{a0}: il n'y en a aucune avec cet identifiant.",
    large_picture: "Désolé, cette image est trop grande pour moi.",
    unreadable_picture: "Désolé, je ne peux pas regarder l'image pour le moment. Veuillez la montrer à \
                         nouveau plus tard.",
    no_model: "Désolé, je ne trouve pas de réponse pour le moment. Veuillez redemander dans un instant.",
    timed_out: "Désolé, cela a pris trop de temps. Veuillez redemander.",
    lost_thread: "Désolé, j'ai perdu le fil. Veuillez redemander.",
    no_answer: "Désolé, je n'ai pas trouvé de réponse à cela.",
};
