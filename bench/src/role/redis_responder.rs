//! The responder of a request and response over Redis pub/sub. It publishes every request back as
//! the response, with many publishes in flight.

use futures_util::StreamExt as _;
use redis::aio::{MultiplexedConnection, PubSub};

use super::{
    RedisOptions,
    fleet::Fleet,
    redis_caller::{REQUESTS, RESPONSES, client},
};

/// Maximum number of responses in flight.
const MAX_IN_FLIGHT: usize = 1024;

/// A fleet with one member, the responding node.
pub(super) struct RedisFleet {
    client: redis::Client,
}

impl RedisFleet {
    pub(super) fn new(options: &RedisOptions) -> anyhow::Result<Self> {
        Ok(Self {
            client: client(&options.url)?,
        })
    }
}

impl Fleet for RedisFleet {
    type Device = (PubSub, MultiplexedConnection);

    async fn dial(&self, _index: u32) -> anyhow::Result<Self::Device> {
        let publisher = self.client.get_multiplexed_async_connection().await?;
        let mut inbox = self.client.get_async_pubsub().await?;
        inbox.subscribe(REQUESTS).await?;
        Ok((inbox, publisher))
    }

    async fn serve((inbox, publisher): Self::Device) -> anyhow::Result<()> {
        let requests = inbox.into_on_message();
        requests
            .for_each_concurrent(MAX_IN_FLIGHT, |request| {
                let mut publisher = publisher.clone();
                async move {
                    let mut publish = redis::cmd("PUBLISH");
                    publish.arg(RESPONSES).arg(request.get_payload_bytes());
                    // The caller times out on a lost response and counts it as an error.
                    let _ = publish.query_async::<()>(&mut publisher).await;
                }
            })
            .await;
        Ok(())
    }
}
