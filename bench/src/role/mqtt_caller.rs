//! Requests to devices of an MQTT 5 broker, with response topic and correlation data. All messages
//! use quality of service 0, the cheapest for the broker.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use rumqttc::{
    NetworkOptions,
    v5::{
        AsyncClient, Event, EventLoop, Incoming, MqttOptions,
        mqttbytes::{QoS, v5::PublishProperties},
    },
};
use tokio::task::JoinSet;

use super::{
    CallerOptions,
    closed_loop::{Caller, select_device},
    device_name, payload,
    pending::Pending,
};

const RESPONSE_TOPIC: &str = "answers";

/// Capacity of the client library's request queue.
const REQUEST_QUEUE_CAPACITY: usize = 4096;

const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(60);

/// A caller that sends all requests over one connection.
pub(super) struct MqttCaller {
    client: AsyncClient,
    pending: Arc<Pending>,
    topics: Vec<String>,
    payload: Bytes,
    // Aborts the reader task when the caller is dropped.
    _reader: JoinSet<anyhow::Result<()>>,
}

impl MqttCaller {
    pub(super) async fn start(options: CallerOptions) -> anyhow::Result<Self> {
        let address = options.address;
        let mut settings = MqttOptions::new("caller", address.ip().to_string(), address.port());
        settings.set_keep_alive(KEEP_ALIVE_INTERVAL);
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        settings.set_network_options(network);
        let (client, mut events) = AsyncClient::new(settings, REQUEST_QUEUE_CAPACITY);
        client.subscribe(RESPONSE_TOPIC, QoS::AtMostOnce).await?;
        while !matches!(events.poll().await?, Event::Incoming(Incoming::SubAck(_))) {}
        let pending = Arc::new(Pending::default());
        let mut reader = JoinSet::new();
        reader.spawn(read(events, Arc::clone(&pending)));
        Ok(Self {
            client,
            pending,
            topics: (0..options.devices).map(device_name).collect(),
            payload: payload().into(),
            _reader: reader,
        })
    }
}

async fn read(mut events: EventLoop, pending: Arc<Pending>) -> anyhow::Result<()> {
    loop {
        if let Event::Incoming(Incoming::Publish(response)) = events.poll().await? {
            let properties = response
                .properties
                .context("the response has no properties")?;
            pending.complete(
                &properties
                    .correlation_data
                    .context("the response has no correlation data")?,
            );
        }
    }
}

impl Caller for MqttCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        let device = select_device(worker, sequence, u32::try_from(self.topics.len())?);
        let topic = self.topics[device as usize].as_str();
        let (number, response) = self.pending.register();
        let properties = PublishProperties {
            response_topic: Some(RESPONSE_TOPIC.to_owned()),
            correlation_data: Some(Bytes::copy_from_slice(&number.to_be_bytes())),
            ..PublishProperties::default()
        };
        let payload = self.payload.clone();
        self.client
            .publish_with_properties(topic, QoS::AtMostOnce, false, payload, properties)
            .await?;
        self.pending.wait(number, response).await
    }
}
