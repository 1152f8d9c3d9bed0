//! The directory's entries in Redis: how they are written, read and reaped.
//! Never: an entry that outlives its node's lease and is still answered.

use std::collections::HashSet;

use bytes::Bytes;
use redis::{Cmd, RedisError, Value};
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, OrgId},
    schema::Digest,
};

use super::{
    keys::{Keys, PARTS},
    link::{Batch, Link},
    script::{self, LEASE_MS, Scripts},
};
use crate::{
    backend::{Claimed, Entry, Presence, Release},
    error::BusError,
    node::{Epoch, NodeId},
};

/// How many entries are looked at in one go.
const SCAN_BATCH: usize = 512;

fn parse_entry(entry: &str) -> Option<Presence> {
    let mut parts = entry.split(' ');
    let epoch = Epoch(parts.next()?.parse().ok()?);
    let node = NodeId::from(parts.next()?);
    let digest = parts.next()?.parse().ok();
    Some(Presence {
        node,
        epoch,
        digest,
    })
}

impl Link {
    fn directory_keys(&self, org: OrgId) -> [String; 3] {
        [
            self.keys.directory(org),
            self.keys.ids(org),
            self.keys.orgs(Keys::part(org)),
        ]
    }

    fn registered(&self, org: OrgId) -> String {
        self.keys.registered(Keys::part(org))
    }

    /// Ends a script's arguments with the channel that it publishes on, and how.
    fn tell_on(&self, script: &mut Cmd, channel: String) {
        script.arg(self.keys.speech.publish).arg(channel);
    }

    pub(super) async fn claim(&self, device: &DeviceKey) -> Result<Claimed, BusError> {
        let names = self.directory_keys(device.org);
        let mut claim = script::run(&self.scripts.claim, &names);
        claim
            .arg(device.device.as_str())
            .arg(self.node.as_str())
            .arg(device.org.to_string());
        self.tell_on(&mut claim, self.registered(device.org));
        let (epoch, former): (u64, String) = self.query(&names[0], &claim).await?;
        Ok(Claimed {
            epoch: Epoch(epoch),
            former: parse_entry(&former),
        })
    }

    pub(super) async fn enter(&self, entries: Vec<Entry>) -> Result<Vec<Option<Epoch>>, BusError> {
        let mut commands = Batch::default();
        for entry in &entries {
            if let (Some(digest), Some(json)) = (entry.digest, &entry.shelve) {
                self.put_on_shelf(&mut commands, digest, json);
            }
        }
        commands.then();
        let shelved = commands.steps.len();
        for entry in &entries {
            let org = entry.device.org;
            let digest = entry
                .digest
                .map_or_else(|| "-".to_owned(), |digest| digest.to_string());
            let names = self.directory_keys(org);
            let mut enter = script::run(&self.scripts.enter, &names);
            enter
                .arg(entry.device.device.as_str())
                .arg(self.node.as_str())
                .arg(org.to_string())
                .arg(entry.epoch.0)
                .arg(digest);
            self.tell_on(&mut enter, self.registered(org));
            commands.add(&names[0], enter);
        }
        let said = self.query_all(commands).await?;
        let standing: Vec<String> = said
            .into_iter()
            .skip(shelved)
            .map(redis::from_redis_value)
            .collect::<Result<_, _>>()
            .map_err(RedisError::from)?;
        Ok(standing
            .iter()
            .map(|epoch| epoch.parse().ok().map(Epoch))
            .collect())
    }

    pub(super) async fn release(&self, releases: Vec<Release>) -> Result<(), BusError> {
        if releases.is_empty() {
            return Ok(());
        }
        let mut commands = Batch::default();
        for release in &releases {
            match release {
                Release::Services(digest) => {
                    let shelf = self.keys.shelf(&self.node);
                    let command = Cmd::hdel(&shelf, digest.to_string());
                    commands.add(shelf, command);
                }
                Release::Entry(DeviceKey { org, device }, epoch) => {
                    let names = self.directory_keys(*org);
                    let mut command = script::run(&self.scripts.release, &names);
                    command
                        .arg(device.as_str())
                        .arg(org.to_string())
                        .arg(epoch.0);
                    self.tell_on(&mut command, self.registered(*org));
                    commands.add(&names[0], command);
                }
            }
        }
        self.query_all(commands).await.map(|_| ())
    }

    pub(super) async fn shelve(&self, services: Vec<(Digest, Bytes)>) -> Result<(), BusError> {
        let mut commands = Batch::default();
        for (digest, json) in &services {
            self.put_on_shelf(&mut commands, *digest, json);
        }
        self.query_all(commands).await.map(|_| ())
    }

    fn put_on_shelf(&self, commands: &mut Batch, digest: Digest, json: &Bytes) {
        let shelf = self.keys.shelf(&self.node);
        let put = Cmd::hset(&shelf, digest.to_string(), &json[..]);
        commands.add(&shelf, put);
        commands.add(&shelf, keep_shelf(&shelf));
    }

    pub(super) async fn find(
        &self,
        org: OrgId,
        devices: &[DeviceId],
    ) -> Result<Vec<Option<Presence>>, BusError> {
        if devices.is_empty() {
            return Ok(Vec::new());
        }
        let mut names = vec![self.keys.directory(org)];
        names.extend(self.leases());
        let mut find = script::run(&self.scripts.find, &names);
        find.arg(LEASE_MS);
        for device in devices {
            find.arg(device.as_str());
        }
        let entries: Vec<String> = self.query(&names[0], &find).await?;
        let mut found: Vec<_> = entries.iter().map(|entry| parse_entry(entry)).collect();
        let dead = self.dead(found.iter().flatten()).await?;
        for place in &mut found {
            place.take_if(|presence| dead.contains(&presence.node));
        }
        Ok(found)
    }

    /// The leases, where a step that reads entries can read them as well.
    fn leases(&self) -> Option<String> {
        self.is_whole().then(|| self.keys.nodes())
    }

    /// Whose leases have ended of those that hold these connections, if that was not seen
    /// together with the entries.
    async fn dead(
        &self,
        entries: impl Iterator<Item = &Presence>,
    ) -> Result<HashSet<NodeId>, BusError> {
        let mut holders: HashSet<NodeId> = HashSet::new();
        if !self.is_whole() {
            holders.extend(entries.map(|presence| presence.node.clone()));
        }
        if holders.is_empty() {
            return Ok(holders);
        }
        let names = [self.keys.nodes()];
        let mut ask = script::run(&self.scripts.living, &names);
        ask.arg(LEASE_MS);
        for node in &holders {
            ask.arg(node.as_str());
        }
        let living: Vec<String> = self.query(&names[0], &ask).await?;
        for node in &living {
            holders.remove(node.as_str());
        }
        Ok(holders)
    }

    pub(super) async fn list(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(DeviceId, Presence)>, BusError> {
        let mut names = vec![self.keys.directory(org), self.keys.ids(org)];
        names.extend(self.leases());
        let mut from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let mut live = Vec::new();
        while live.len() < limit {
            let wanted = limit - live.len();
            let mut list = script::run(&self.scripts.list, &names);
            list.arg(LEASE_MS).arg(&from).arg(wanted);
            let found: Vec<String> = self.query(&names[0], &list).await?;
            let mut found = found.into_iter();
            let seen: usize = found.next().and_then(|seen| seen.parse().ok()).unwrap_or(0);
            from = format!("({}", found.next().unwrap_or_default());
            let mut entries: Vec<(DeviceId, Presence)> = Vec::new();
            while let (Some(device), Some(entry)) = (found.next(), found.next()) {
                entries.extend(device.parse().ok().zip(parse_entry(&entry)));
            }
            let dead = self
                .dead(entries.iter().map(|(_, presence)| presence))
                .await?;
            entries.retain(|(_, presence)| !dead.contains(&presence.node));
            live.append(&mut entries);
            if seen < wanted {
                break;
            }
        }
        Ok(live)
    }

    /// Renews the lease; takes out what nodes without a lease left behind. What was taken out
    /// until something failed is answered all the same; the rest is the next beat's.
    pub(super) async fn beat(&self) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let said = self
            .query_all(beat(&self.keys, &self.node, &self.scripts))
            .await?;
        let beat = said.into_iter().next().unwrap_or(Value::Nil);
        let (lapsed, dead): (bool, Vec<String>) =
            redis::from_redis_value(beat).map_err(RedisError::from)?;
        if lapsed {
            // This process stood still, or Redis was emptied: other nodes may have taken its entries out.
            self.standing.lease_lapsed();
        }
        let mut reaped = Vec::new();
        for node in dead {
            let before = reaped.len();
            if let Err(error) = self.reap(&node, &mut reaped).await {
                tracing::warn!(%error, node.id = node, "a dead node's entries are still in the directory");
                break;
            }
            tracing::info!(
                node.id = node,
                devices = reaped.len() - before,
                "took out what a dead node left in the directory"
            );
        }
        Ok(reaped)
    }

    async fn reap(&self, node: &str, reaped: &mut Vec<(DeviceKey, Epoch)>) -> Result<(), BusError> {
        let entries = self.entries_of(node).await?;
        for chunk in entries.chunks(SCAN_BATCH) {
            for of_org in chunk.chunk_by(|(one, _), (other, _)| one.org == other.org) {
                reaped.extend(self.reap_devices(node, of_org).await?);
            }
        }
        self.forget(&NodeId::from(node)).await
    }

    async fn forget(&self, node: &NodeId) -> Result<(), BusError> {
        let (nodes, shelf) = (self.keys.nodes(), self.keys.shelf(node));
        let mut forget = Batch::default();
        forget.add(&nodes, Cmd::zrem(&nodes, node.as_str()));
        forget.add(&shelf, Cmd::del(&shelf));
        self.query_all(forget).await.map(|_| ())
    }

    /// Every entry under a node: looks through every organisation's live devices, a part at a
    /// time. It is rare, and spares every claim a second index.
    pub(super) async fn entries_of(&self, node: &str) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let mut ask = Batch::default();
        for part in 0..PARTS {
            let orgs = self.keys.orgs(part);
            ask.add(&orgs, Cmd::smembers(&orgs));
        }
        let orgs = Value::Array(self.query_all(ask).await?);
        let orgs: Vec<Vec<String>> = redis::from_redis_value(orgs).map_err(RedisError::from)?;
        let orgs = orgs.iter().flatten();
        let mut entries = Vec::new();
        for org in orgs.filter_map(|org| org.parse::<OrgId>().ok()) {
            let name = self.keys.directory(org);
            let mut cursor = 0_u64;
            loop {
                let mut scan = redis::cmd("HSCAN");
                scan.arg(&name).arg(cursor).arg("COUNT").arg(SCAN_BATCH);
                let (next, found): (u64, Vec<(String, String)>) = self.query(&name, &scan).await?;
                entries.extend(found.iter().filter_map(|(device, entry)| {
                    let presence =
                        parse_entry(entry).filter(|presence| presence.node.as_str() == node)?;
                    Some((
                        DeviceKey {
                            org,
                            device: device.parse().ok()?,
                        },
                        presence.epoch,
                    ))
                }));
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(entries)
    }

    /// Takes out entries of one organisation that still are this node's.
    async fn reap_devices(
        &self,
        node: &str,
        entries: &[(DeviceKey, Epoch)],
    ) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let Some((DeviceKey { org, .. }, _)) = entries.first() else {
            return Ok(Vec::new());
        };
        let names = self.directory_keys(*org);
        let mut reap = script::run(&self.scripts.reap, &names);
        reap.arg(org.to_string()).arg(node);
        self.tell_on(&mut reap, self.registered(*org));
        for (device, _) in entries {
            reap.arg(device.device.as_str());
        }
        let epochs: Vec<String> = self.query(&names[0], &reap).await?;
        let pairs = entries.iter().zip(epochs);
        Ok(pairs
            .filter_map(|((device, _), epoch)| Some((device.clone(), Epoch(epoch.parse().ok()?))))
            .collect())
    }

    /// Closes the connection: nobody is heard here any more. Gives the lease back if nothing is
    /// left that would have to be reaped.
    pub(super) async fn leave(&self, clean: bool) -> Result<(), BusError> {
        let left = if clean {
            self.forget(&self.node).await
        } else {
            Ok(())
        };
        self.end();
        left
    }
}

/// A shelf lives as long as its node's lease, and longer than a reader of an entry needs.
fn keep_shelf(shelf: &str) -> Cmd {
    Cmd::pexpire(shelf, 2 * LEASE_MS.cast_signed())
}

/// Renews a node's lease, and keeps its shelf.
pub(super) fn beat(keys: &Keys, node: &NodeId, scripts: &Scripts) -> Batch {
    let names = [keys.nodes()];
    let mut renew = script::run(&scripts.beat, &names);
    renew.arg(LEASE_MS).arg(node.as_str());
    renew.arg(keys.speech.publish).arg(keys.missed());
    let shelf = keys.shelf(node);
    let mut commands = Batch::default();
    commands.add(&names[0], renew);
    commands.add(&shelf, keep_shelf(&shelf));
    commands
}
