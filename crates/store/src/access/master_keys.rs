//! Master keys, which encrypt the signing and sealing keys in the database.
//!
//! Invariant: no log line, error or `Debug` output contains key material.

use std::{fmt, path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf,
};
use secrecy::{SecretBox, SecretString, zeroize::Zeroize as _};
use sha2::{Digest as _, Sha256};
use switchboard_protocol::token::SigningKey;

/// The word that stands for no key, as the first of the list.
const NONE: &str = "none";
const KEY_BYTES: usize = 32;
/// The prefix of the hash that is the id of a master key.
const ID_BYTES: usize = 8;
/// Separate what is derived from a master key.
const SALT: &[u8] = b"switchboard master key";
const ID: &[u8] = b"switchboard master key id";
const WRAPPING: &[u8] = b"wrapping key";
const KEY_SET: &[u8] = b"key set signing key";

/// Configuration of the master keys.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct MasterKeyConfig {
    /// Master key: 32 random bytes in base64, as of `openssl rand -base64 32`. It encrypts the keys
    /// in PostgreSQL that sign access tokens and seal secrets. Former master keys follow it,
    /// separated by commas; `none` as the first one stores the keys in the clear
    #[arg(
        long,
        env,
        hide_env_values = true,
        value_name = "KEY,…",
        value_parser = MasterKeys::parse,
        conflicts_with = "master_key_file"
    )]
    pub master_key: Option<MasterKeys>,

    /// File with the master key, and former ones on further lines
    #[arg(long, env, value_name = "FILE", value_parser = |path: &str| MasterKeys::read(Path::new(path)))]
    pub master_key_file: Option<MasterKeys>,
}

impl MasterKeyConfig {
    /// The configured keys; `None` if there are none.
    #[must_use]
    pub fn keys(&self) -> Option<&MasterKeys> {
        self.master_key.as_ref().or(self.master_key_file.as_ref())
    }
}

/// The master keys of a process: the one that encrypts, and those that only decrypt. Cheap to
/// clone. The default has none: keys are stored in the clear.
#[derive(Clone, Default)]
pub struct MasterKeys {
    keys: Arc<[MasterKey]>,
    /// Whether the first key encrypts.
    encrypts: bool,
}

/// Why a key in the database cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MasterKeyError {
    /// This process does not have the master key.
    #[error(
        "{key} is encrypted with the master key {master_key}, and this process has {present}: add \
         that master key to SWITCHBOARD_MASTER_KEY or --master-key-file; nothing was changed"
    )]
    Missing {
        /// The key in the database.
        key: String,
        /// The id of the missing master key.
        master_key: String,
        /// The master keys of this process.
        present: String,
    },
    /// The row was changed.
    #[error(
        "{key} cannot be decrypted with the master key {master_key}: its row was changed, or copied \
         from another one; restore it from a backup. Nothing was changed"
    )]
    Damaged {
        /// The key in the database.
        key: String,
        /// The id of the master key.
        master_key: String,
    },
}

struct MasterKey {
    /// The first 16 hexadecimal digits of a hash of the key.
    id: String,
    wrapping: LessSafeKey,
    key_set: SigningKey,
}

impl MasterKeys {
    /// Generates a key, as [`Self::parse`] expects it.
    #[must_use]
    pub fn generate() -> SecretString {
        let mut key: [u8; KEY_BYTES] = rand::random();
        let text = STANDARD.encode(key);
        key.zeroize();
        text.into()
    }

    /// Parses keys in base64, separated by whitespace or commas: the current one first, or `none`.
    ///
    /// # Errors
    /// Which of them is not 32 bytes in base64. The text does not contain it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = text
            .split([',', ' ', '\t', '\r', '\n'])
            .filter(|word| !word.is_empty())
            .peekable();
        let encrypts = words.next_if_eq(&NONE).is_none();
        let keys: Arc<[MasterKey]> = words
            .enumerate()
            .map(|(index, word)| {
                MasterKey::decode(word).ok_or_else(|| {
                    let number = index + 1;
                    format!(
                        "key {number} is not {KEY_BYTES} bytes in base64; \
                         `openssl rand -base64 {KEY_BYTES}` generates one"
                    )
                })
            })
            .collect::<Result<_, _>>()?;
        if keys.is_empty() && encrypts {
            return Err(format!(
                "there is no key; `openssl rand -base64 {KEY_BYTES}` generates one"
            ));
        }
        Ok(Self { keys, encrypts })
    }

    /// Reads keys from a file, as [`Self::parse`] expects them.
    ///
    /// # Errors
    /// Why the file is not readable, or as [`Self::parse`].
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let mut text = std::fs::read_to_string(path)
            .map_err(|error| format!("{shown} cannot be read: {error}"))?;
        let keys = Self::parse(&text).map_err(|error| format!("{shown}: {error}"));
        text.zeroize();
        keys
    }

    /// The id of the key that encrypts; `None` if keys are stored in the clear.
    #[must_use]
    pub fn current_id(&self) -> Option<&str> {
        self.current().map(|key| key.id.as_str())
    }

    /// The key that signs the published token keys, derived from the key that encrypts; `None` if
    /// keys are stored in the clear.
    #[must_use]
    pub fn key_set_key(&self) -> Option<&SigningKey> {
        self.current().map(|key| &key.key_set)
    }

    /// The public keys of [`Self::key_set_key`], in base64url, of all master keys: the current one
    /// first.
    #[must_use]
    pub fn key_set_public_keys(&self) -> Vec<String> {
        let keys = self.keys.iter();
        keys.map(|key| key.key_set.verifying_key().x).collect()
    }

    fn current(&self) -> Option<&MasterKey> {
        self.keys.first().filter(|_| self.encrypts)
    }

    /// Encrypts a key for this row. Returns it with the id of the master key; `None` if keys are
    /// stored in the clear.
    pub(super) fn wrap(&self, row: &Row<'_>, key: &[u8; KEY_BYTES]) -> Option<Wrapped> {
        let current = self.current()?;
        Some(Wrapped {
            bytes: current.seal(row, key)?,
            master_key_id: current.id.clone(),
        })
    }

    pub(super) fn unwrap(
        &self,
        row: &Row<'_>,
        wrapped: &Wrapped,
    ) -> Result<SecretBox<[u8; KEY_BYTES]>, MasterKeyError> {
        let master_key = wrapped.master_key_id.clone();
        let Some(with) = self.keys.iter().find(|key| key.id == master_key) else {
            return Err(MasterKeyError::Missing {
                key: row.to_string(),
                master_key,
                present: self.to_string(),
            });
        };
        let opened = with.open(row, &wrapped.bytes);
        opened.ok_or_else(|| MasterKeyError::Damaged {
            key: row.to_string(),
            master_key,
        })
    }
}

/// The ids, without the keys.
impl fmt::Display for MasterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.keys.is_empty() {
            return f.write_str("no master key");
        }
        f.write_str("the master keys")?;
        for (index, key) in self.keys.iter().enumerate() {
            let separator = if index == 0 { " " } else { ", " };
            write!(f, "{separator}{}", key.id)?;
        }
        Ok(())
    }
}

impl fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKeys({self})")
    }
}

impl MasterKey {
    fn decode(text: &str) -> Option<Self> {
        let mut decoded = STANDARD.decode(text).ok()?;
        let key = (decoded.len() == KEY_BYTES).then(|| Self::new(&decoded));
        decoded.zeroize();
        key.flatten()
    }

    fn new(key: &[u8]) -> Option<Self> {
        let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(key);
        let wrapping = derived.expand(&[WRAPPING], &CHACHA20_POLY1305).ok()?;
        let mut seed = [0; KEY_BYTES];
        let key_set = derived.expand(&[KEY_SET], hkdf::HKDF_SHA256).ok()?;
        key_set.fill(&mut seed).ok()?;
        let key_set = SigningKey::from_seed(&seed);
        seed.zeroize();
        let hash = Sha256::new().chain_update(ID).chain_update(key).finalize();
        let id = hash.iter().take(ID_BYTES).map(|byte| format!("{byte:02x}"));
        Some(Self {
            id: id.collect(),
            wrapping: LessSafeKey::new(UnboundKey::from(wrapping)),
            key_set,
        })
    }

    /// A random nonce, followed by the encrypted key and its tag.
    fn seal(&self, row: &Row<'_>, key: &[u8; KEY_BYTES]) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut sealed = key.to_vec();
        self.wrapping
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                row.associated_data(),
                &mut sealed,
            )
            .ok()?;
        Some([nonce.as_slice(), &sealed].concat())
    }

    fn open(&self, row: &Row<'_>, sealed: &[u8]) -> Option<SecretBox<[u8; KEY_BYTES]>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut opened = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let text = self
            .wrapping
            .open_in_place(nonce, row.associated_data(), &mut opened)
            .ok()?;
        let key = SecretBox::try_init_with(|| <[u8; KEY_BYTES]>::try_from(&*text));
        opened.zeroize();
        key.ok()
    }
}

/// An encrypted key, as it is stored.
pub(super) struct Wrapped {
    pub(super) bytes: Vec<u8>,
    pub(super) master_key_id: String,
}

/// The row of a key. It is authenticated with the key, so that no key can be copied to another row.
#[derive(Clone, Copy)]
pub(super) enum Row<'a> {
    /// The signing key with this id.
    Signing(&'a str),
    /// The sealing key of this purpose.
    Sealing(&'a str),
}

impl Row<'_> {
    /// Serialised: the table, and the primary key.
    fn associated_data(&self) -> Aad<Vec<u8>> {
        let (table, id) = match self {
            Self::Signing(kid) => ("signing_keys", kid),
            Self::Sealing(purpose) => ("sealing_keys", purpose),
        };
        // No table's name contains the separator.
        Aad::from([table, ":", id].concat().into_bytes())
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signing(kid) => write!(f, "the signing key {kid}"),
            Self::Sealing(purpose) => write!(f, "the sealing key \"{purpose}\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    /// The id of a master key, and a key that an earlier release encrypted with it.
    const WRAPPED: &str = include_str!("../../../../tests/compatibility/wrapped-key.txt");

    /// The keys of 32 equal bytes each.
    fn master_keys(bytes: &[u8]) -> MasterKeys {
        let keys = bytes.iter().map(|byte| STANDARD.encode([*byte; KEY_BYTES]));
        MasterKeys::parse(&keys.collect::<Vec<_>>().join("\n")).unwrap()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn list_of_keys_is_parsed() {
        fn check(text: &str, expect: Result<(usize, bool), &str>) {
            let parsed = MasterKeys::parse(text);
            let parsed = parsed.map(|keys| (keys.keys.len(), keys.current_id().is_some()));
            match (parsed, expect) {
                (Ok(parsed), Ok(expect)) => assert_eq!(parsed, expect),
                (Err(error), Err(expect)) => assert!(error.contains(expect), "{error}"),
                (parsed, expect) => panic!("{parsed:?} instead of {expect:?}"),
            }
        }
        let (one, two) = (STANDARD.encode([1; 32]), STANDARD.encode([2; 32]));
        check(&format!("{one}\n"), Ok((1, true)));
        check(&format!("{one}\r\n\n  {two}"), Ok((2, true)));
        check(&format!("{one},{two}"), Ok((2, true)));
        check(&format!("none\n{one}"), Ok((1, false)));
        check("none", Ok((0, false)));
        check("", Err("there is no key"));
        check(&format!("{one} none"), Err("key 2 is not 32 bytes"));
        check(&STANDARD.encode([1; 31]), Err("key 1 is not 32 bytes"));
        check(&"ab".repeat(32), Err("key 1 is not 32 bytes"));
    }

    #[test]
    fn only_the_master_key_and_the_row_unwrap_a_key() {
        let (key, row) = ([7; KEY_BYTES], Row::Signing("a"));
        let wrapped = master_keys(&[1]).wrap(&row, &key).unwrap();
        let unwrap = |bytes: &[u8], row| {
            let opened = master_keys(bytes).unwrap(&row, &wrapped);
            opened.map(|opened| *opened.expose_secret())
        };
        assert_eq!(unwrap(&[1], row), Ok(key));
        assert_eq!(unwrap(&[2, 1], row), Ok(key));
        let missing = unwrap(&[2], row).unwrap_err();
        assert!(
            matches!(missing, MasterKeyError::Missing { .. }),
            "{missing}"
        );
        for other in [Row::Signing("b"), Row::Sealing("a")] {
            let damaged = unwrap(&[1], other).unwrap_err();
            assert!(
                matches!(damaged, MasterKeyError::Damaged { .. }),
                "{damaged}"
            );
        }
        let again = master_keys(&[1]).wrap(&row, &key).unwrap();
        assert_ne!(again.bytes, wrapped.bytes, "the nonce is random");
    }

    #[test]
    fn debug_and_errors_do_not_contain_the_key() {
        let (keys, encoded) = (master_keys(&[1]), STANDARD.encode([1; KEY_BYTES]));
        let id = keys.current_id().unwrap().to_owned();
        let shown = format!("{keys:?} {keys}");
        assert!(shown.contains(&id), "{shown}");
        assert!(
            !shown.contains(&encoded) && !shown.contains("1, 1"),
            "{shown}"
        );
        let error = MasterKeys::parse(&format!("{encoded} {}", &encoded[..40])).unwrap_err();
        assert!(!error.contains(&encoded[..8]), "{error}");
    }

    #[test]
    fn wrapped_key_of_an_earlier_release_is_opened() {
        let (keys, row) = (master_keys(&[1]), Row::Sealing("purpose"));
        let now = keys.wrap(&row, &[7; KEY_BYTES]).unwrap();
        let (id, sealed) = WRAPPED.trim().split_once(' ').unwrap();
        let bytes = (0..sealed.len()).step_by(2);
        let bytes = bytes.map(|at| u8::from_str_radix(&sealed[at..at + 2], 16).unwrap());
        let wrapped = Wrapped {
            bytes: bytes.collect(),
            master_key_id: id.to_owned(),
        };
        let opened = keys.unwrap(&row, &wrapped);
        assert!(
            opened.is_ok_and(|opened| *opened.expose_secret() == [7; KEY_BYTES]),
            "compatibility break: stored keys can not be read any longer; now: {} {}",
            now.master_key_id,
            hex(&now.bytes)
        );
    }
}
