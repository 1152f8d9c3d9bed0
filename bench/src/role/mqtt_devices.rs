//! Devices of an MQTT 5 broker, each with its own connection and one subscription. They use no
//! client library, to keep the cost of a device low.

use std::net::SocketAddr;

use anyhow::bail;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    BrokerOptions, device_name,
    fleet::Fleet,
    mqtt_packet::{Packet, connect, parse, publish_response, subscribe},
    payload,
};

/// Devices that connect to one broker.
pub(super) struct MqttFleet {
    address: SocketAddr,
}

/// A connection with its one subscription.
pub(super) struct MqttDevice {
    stream: TcpStream,
    received: Vec<u8>,
}

impl MqttFleet {
    pub(super) fn new(options: &BrokerOptions) -> Self {
        Self {
            address: options.address,
        }
    }
}

impl Fleet for MqttFleet {
    type Device = MqttDevice;

    async fn dial(&self, index: u32) -> anyhow::Result<MqttDevice> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let mut device = MqttDevice {
            stream,
            received: Vec::new(),
        };
        let name = device_name(index);
        device.stream.write_all(&connect(&name)).await?;
        device.expect(&Packet::Connected).await?;
        device.stream.write_all(&subscribe(&name)).await?;
        device.expect(&Packet::Subscribed).await?;
        Ok(device)
    }

    async fn serve(mut device: MqttDevice) -> anyhow::Result<()> {
        let payload = payload();
        let mut responses = Vec::new();
        loop {
            device.read().await?;
            let mut consumed = 0;
            while let Some((packet, length)) = parse(&device.received[consumed..])? {
                if let Packet::Request {
                    response_topic,
                    correlation,
                } = packet
                {
                    responses.extend(publish_response(response_topic, correlation, &payload));
                }
                consumed += length;
            }
            device.received.drain(..consumed);
            device.stream.write_all(&responses).await?;
            responses.clear();
        }
    }
}

impl MqttDevice {
    async fn read(&mut self) -> anyhow::Result<()> {
        match self.stream.read_buf(&mut self.received).await? {
            0 => bail!("the broker closed the connection"),
            _ => Ok(()),
        }
    }

    async fn expect(&mut self, expected: &Packet<'_>) -> anyhow::Result<()> {
        loop {
            self.read().await?;
            while let Some((packet, length)) = parse(&self.received)? {
                let arrived = packet == *expected;
                self.received.drain(..length);
                if arrived {
                    return Ok(());
                }
            }
        }
    }
}
