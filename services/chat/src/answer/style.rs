//! How the answer to a spoken message is to be spoken, which is the voice of the NPC, and whether
//! further messages are recorded.

use std::time::Duration;

use switchboard_bus::{SpeakingStyle, Turn};
use switchboard_protocol::id::VoiceId;
use switchboard_store::{Owner, VoiceState};
use tokio::time::timeout;
use tracing::warn;

use crate::{Chat, recording, user_message::UserMessage};

/// Time to look up a trained voice. The answer waits for it, so that it begins in the right voice.
const VOICE_LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);

/// Sends the voice of the NPC before the answer to a spoken message, and whether to record.
pub(crate) async fn send(chat: &Chat, turn: &Turn, message: &UserMessage) {
    if !turn.is_spoken {
        return;
    }
    let (style, is_recorded) = tokio::join!(
        npc_style(chat, message),
        recording::is_on(chat, message.org)
    );
    let style = SpeakingStyle {
        is_recorded,
        ..style
    };
    if !style.is_default() {
        chat.bus.send_style(turn, &style);
    }
}

async fn npc_style(chat: &Chat, message: &UserMessage) -> SpeakingStyle {
    let Some(npc) = &message.npc else {
        return SpeakingStyle::default();
    };
    let settings = &npc.effective.settings;
    let voice = settings.voice.as_ref();
    let named = match (settings.custom_voice(), voice) {
        (Some(id), _) => trained_voice(chat, message, id).await,
        (None, Some(voice)) => Some(voice.voice_id.clone()),
        (None, None) => None,
    };
    SpeakingStyle {
        voice: named,
        language: settings.locale.clone(),
        rate: voice.and_then(|voice| voice.rate),
        is_recorded: false,
    }
}

/// The provider's name of a voice that is ready and whose consent holds.
async fn trained_voice(chat: &Chat, message: &UserMessage, id: VoiceId) -> Option<String> {
    let lookup = chat.store.voice(Owner::Org(message.org), id);
    match timeout(VOICE_LOOKUP_TIMEOUT, lookup).await {
        Ok(Ok(voice)) => voice
            .filter(|voice| voice.state == VoiceState::Ready)
            .and_then(|voice| voice.made_as),
        Ok(Err(error)) => {
            warn!(error = error.report(), voice.id = %id, "cannot look up the voice of an NPC");
            None
        }
        Err(_) => {
            warn!(voice.id = %id, "the voice of an NPC was not found in time");
            None
        }
    }
}
