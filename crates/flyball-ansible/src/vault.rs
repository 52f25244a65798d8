//! Files and values that `ansible-vault` encrypted, in the formats 1.1 and 1.2 with AES256.
//!
//! See <https://docs.ansible.com/ansible/latest/vault_guide/vault_using_encrypted_content.html>. Only files of the
//! project are decrypted, when they are read; text of users never is.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use ring::{hmac, pbkdf2};
use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Beginning of encrypted texts.
const HEADER: &str = "$ANSIBLE_VAULT;";
const ITERATIONS: NonZeroU32 = NonZeroU32::new(10_000).expect("it is not zero");
const BLOCK: usize = 16;

/// The password of a project, or several of its passwords.
#[derive(Clone, Default)]
pub(crate) struct Vault {
    /// Files and passwords.
    secrets: Vec<(PathBuf, Arc<str>)>,
}

impl Vault {
    /// Reads the file in the environment variable that Ansible uses.
    pub(crate) fn of_environment(project: &Path) -> Result<Self, String> {
        let file = std::env::var_os("ANSIBLE_VAULT_PASSWORD_FILE").filter(|file| !file.is_empty());
        file.map_or_else(|| Ok(Self::default()), |file| Self::read(project.join(file)))
    }

    /// Reads the file of a password.
    pub(crate) fn read(file: PathBuf) -> Result<Self, String> {
        let shown = file.display();
        let text = std::fs::read_to_string(&file).map_err(|error| format!("cannot read {shown}: {error}"))?;
        // Ansible would run an executable file.
        match text.trim() {
            "" => Err(format!("{shown} is empty: write the password into it")),
            script if script.starts_with("#!") => Err(format!("{shown} is a script: write the password into it")),
            password => Ok(Self { secrets: vec![(file.clone(), password.into())] }),
        }
    }

    /// Adds the passwords of another one.
    pub(crate) fn join(&mut self, other: &Self) {
        let is_new = |(file, _): &&(PathBuf, Arc<str>)| !self.secrets.iter().any(|(known, _)| known == file);
        let others: Vec<_> = other.secrets.iter().filter(is_new).cloned().collect();
        self.secrets.extend(others);
    }

    /// Returns the file of the password.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.secrets.first().map(|(file, _)| &**file)
    }

    /// Returns true if a text is encrypted.
    pub(crate) fn is_encrypted(text: &str) -> bool {
        text.starts_with(HEADER)
    }

    /// Decrypts a text.
    pub(crate) fn decrypt(&self, text: &str) -> Result<String, String> {
        if self.secrets.is_empty() {
            return Err("encrypted by ansible-vault: set vaultPasswordFile in watches.yaml".to_owned());
        }
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().unwrap_or_default().split(';').map(str::trim).collect();
        if !matches!(&header[..], ["$ANSIBLE_VAULT", "1.1" | "1.2", "AES256"] | ["$ANSIBLE_VAULT", "1.2", "AES256", _])
        {
            return Err(format!("unsupported vault format {:?}: use 1.1 or 1.2 with AES256", header.join(";")));
        }
        let invalid = || "invalid vault: encrypt it again with ansible-vault".to_owned();
        let outer = bytes(&lines.map(str::trim).collect::<String>()).ok_or_else(invalid)?;
        let outer = String::from_utf8(outer).map_err(|_| invalid())?;
        let parts: Option<Vec<_>> = outer.split('\n').map(bytes).collect();
        let [salt, tag, content] = <[Vec<u8>; 3]>::try_from(parts.ok_or_else(invalid)?).map_err(|_| invalid())?;
        let keys = |(_, password): &(PathBuf, Arc<str>)| {
            let mut keys = [0; 80];
            pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, &salt, password.as_bytes(), &mut keys);
            let key = hmac::Key::new(hmac::HMAC_SHA256, &keys[32..64]);
            hmac::verify(&key, &content, &tag).ok().map(|()| keys)
        };
        let Some(keys) = self.secrets.iter().find_map(keys) else {
            let files: Vec<_> = self.secrets.iter().map(|(file, _)| file.display().to_string()).collect();
            return Err(format!("the password in {} does not decrypt this vault", files.join(" or ")));
        };
        let mut content = content;
        let (key, counter) = (<[u8; 32]>::try_from(&keys[..32]), <[u8; BLOCK]>::try_from(&keys[64..]));
        let (Ok(key), Ok(counter)) = (key, counter) else { return Err(invalid()) };
        apply_keystream(&Aes256::new(&Array::from(key)), u128::from_be_bytes(counter), &mut content);
        let padding = content.last().map_or(0, |last| usize::from(*last));
        let length =
            content.len().checked_sub(padding).filter(|_| (1..=BLOCK).contains(&padding)).ok_or_else(invalid)?;
        content.truncate(length);
        String::from_utf8(content).map_err(|_| "the decrypted text is not UTF-8".to_owned())
    }
}

/// The password is secret, so it is not printed.
impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(…)")
    }
}

/// Encrypts or decrypts a text in counter mode.
fn apply_keystream(cipher: &Aes256, mut counter: u128, text: &mut [u8]) {
    for part in text.chunks_mut(BLOCK) {
        let mut block = Array::from(counter.to_be_bytes());
        cipher.encrypt_block(&mut block);
        part.iter_mut().zip(block.iter()).for_each(|(byte, key)| *byte ^= key);
        counter = counter.wrapping_add(1);
    }
}

/// Parses hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digit = |letter: &u8| char::from(*letter).to_digit(16);
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::try_from(digit(pair.first()?)? * 16 + digit(pair.get(1)?)?).ok()).collect()
}
