//! The other side of a request and an answer through Redis pub/sub: sends back what came in.
//! Never: one publish after another; answers are under way at the same time, as requests are.

use futures_util::StreamExt as _;
use redis::aio::{MultiplexedConnection, PubSub};

use super::{
    RedisOptions,
    fleet::Fleet,
    redis_caller::{ANSWERS, REQUESTS, client},
};

/// Answers under way at most.
const IN_FLIGHT: usize = 1024;

/// A fleet of one: the responding node.
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
            .for_each_concurrent(IN_FLIGHT, |request| {
                let mut publisher = publisher.clone();
                async move {
                    let mut publish = redis::cmd("PUBLISH");
                    publish.arg(ANSWERS).arg(request.get_payload_bytes());
                    // A lost answer is seen by the caller, which counts it.
                    let _ = publish.query_async::<()>(&mut publisher).await;
                }
            })
            .await;
        Ok(())
    }
}
