//! Checksums, passwords and ciphers.

mod der;
mod keys;
mod scrypt;

use super::encoding::from_base64;
use super::json::base64;
use super::{INT, STR, Table, bytes, cost, int, random, text};
use crate::context::Call;
use crate::value::Value;
use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use ring::{digest, hmac};

pub(super) use keys::{PrivateKey, p256_secret, p256_sign};

pub(super) fn add(table: &mut Table) {
    table.add("sha1sum", cost::letters, &[STR], |_, args| Ok(sum(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes(&args[0]))));
    table.add("sha256sum", cost::letters, &[STR], |_, args| Ok(sum(&digest::SHA256, bytes(&args[0]))));
    table.add("sha512sum", cost::letters, &[STR], |_, args| Ok(sum(&digest::SHA512, bytes(&args[0]))));
    table.add("adler32sum", cost::letters, &[STR], |_, args| Ok(Value::str(adler32(bytes(&args[0])).to_string())));
    table.add("bcrypt", cost::slow::<3_000_000>, &[STR], |call, args| Ok(Value::str(hashed(call, bytes(&args[0])))));
    table.add("htpasswd", cost::slow::<3_000_000>, &[STR, STR], |call, args| {
        let user = text(&args[0]);
        Ok(Value::str(match user.contains(':') {
            true => format!("invalid username: {user}"),
            false => format!("{user}:{}", hashed(call, bytes(&args[1]))),
        }))
    });
    table.add("derivePassword", cost::slow::<10_000_000>, &[INT, STR, STR, STR, STR], |_, args| {
        let counter = u32::try_from(int(&args[0])).map_err(|_| "the counter must be a 32-bit number".to_owned())?;
        Ok(Value::str(derive(counter, &text(&args[1]), bytes(&args[2]), bytes(&args[3]), bytes(&args[4]))))
    });
    table.add("encryptAES", blocks, &[STR, STR], |call, args| {
        Ok(Value::str(encrypt(call, bytes(&args[0]), bytes(&args[1]))))
    });
    table.add("decryptAES", blocks, &[STR, STR], |_, args| decrypt(bytes(&args[0]), bytes(&args[1])).map(Value::str));
    table.add("genPrivateKey", cost::slow::<10_000_000>, &[STR], |call, args| {
        Ok(Value::str(keys::generate(call, &text(&args[0]))))
    });
}

/// Cost of the key setup, and of each block.
fn blocks(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    const KEY: u64 = 1_000;
    cost::slow::<KEY>(call, args)?;
    call.context.charge(args.iter().map(|arg| bytes(arg).len()).sum::<usize>() * 2, 0)
}

fn sum(algorithm: &'static digest::Algorithm, bytes: &[u8]) -> Value {
    Value::str(hex_digest(algorithm, bytes))
}

/// Returns a digest in hexadecimal.
pub(crate) fn hex_digest(algorithm: &'static digest::Algorithm, bytes: &[u8]) -> String {
    flyball_core::hex::encode(digest::digest(algorithm, bytes).as_ref())
}

fn adler32(bytes: &[u8]) -> u32 {
    const PRIME: u32 = 65521;
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % PRIME;
        (low, (high + low) % PRIME)
    });
    high << 16 | low
}

/// Hashes a password with bcrypt, at Go's default cost.
fn hashed(call: &Call<'_>, password: &[u8]) -> String {
    const COST: u32 = 10;
    if password.len() > 72 {
        return "failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes".to_owned();
    }
    let mut salt = [0; 16];
    salt.copy_from_slice(&random::bytes(call, 16));
    match ::bcrypt::hash_with_salt(password, COST, salt) {
        Ok(parts) => parts.format_for_version(::bcrypt::Version::TwoA),
        Err(error) => format!("failed to encrypt string with bcrypt: {error}"),
    }
}

/// Derives a site password from a master password. See <https://spectre.app/spectre-algorithm.pdf>.
fn derive(counter: u32, kind: &str, password: &[u8], user: &[u8], site: &[u8]) -> String {
    const SEED: &[u8] = b"com.lyndir.masterpassword";
    let templates: &[&str] = match kind {
        "maximum" => &["anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"],
        "long" => &[
            "CvcvnoCvcvCvcv",
            "CvcvCvcvnoCvcv",
            "CvcvCvcvCvcvno",
            "CvccnoCvcvCvcv",
            "CvccCvcvnoCvcv",
            "CvccCvcvCvcvno",
            "CvcvnoCvccCvcv",
            "CvcvCvccnoCvcv",
            "CvcvCvccCvcvno",
            "CvcvnoCvcvCvcc",
            "CvcvCvcvnoCvcc",
            "CvcvCvcvCvccno",
            "CvccnoCvccCvcv",
            "CvccCvccnoCvcv",
            "CvccCvccCvcvno",
            "CvcvnoCvccCvcc",
            "CvcvCvccnoCvcc",
            "CvcvCvccCvccno",
            "CvccnoCvcvCvcc",
            "CvccCvcvnoCvcc",
            "CvccCvcvCvccno",
        ],
        "medium" => &["CvcnoCvc", "CvcCvcno"],
        "short" => &["Cvcn"],
        "basic" => &["aaanaaan", "aannaaan", "aaannaaa"],
        "pin" => &["nnnn"],
        _ => return format!("cannot find password template {kind}"),
    };
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
    let key = scrypt::key(password, &[SEED, &length(user)[..], user].concat());
    let message = [SEED, &length(site)[..], site, &counter.to_be_bytes()[..]].concat();
    let seed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &message);
    let seed = seed.as_ref();
    let template = templates[usize::from(seed[0]) % templates.len()];
    let characters = |class: char| match class {
        'V' => "AEIOU",
        'C' => "BCDFGHJKLMNPQRSTVWXYZ",
        'v' => "aeiou",
        'c' => "bcdfghjklmnpqrstvwxyz",
        'a' => "AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
        'n' => "0123456789",
        'o' => "@&%?,=[]_:-+*$#!'^~;()/.",
        _ => "AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
    };
    let pick = |(class, byte): (char, &u8)| {
        let from = characters(class).as_bytes();
        char::from(from[usize::from(*byte) % from.len()])
    };
    template.chars().zip(&seed[1..]).map(pick).collect()
}

const BLOCK: usize = 16;

fn cipher(password: &[u8]) -> Aes256 {
    let mut key = [0; 32];
    let length = password.len().min(32);
    key[..length].copy_from_slice(&password[..length]);
    Aes256::new(&Array::from(key))
}

/// AES-256 in CBC mode, with a random initialization vector as first block.
fn encrypt(call: &Call<'_>, password: &[u8], plain: &[u8]) -> String {
    if plain.is_empty() {
        return String::new();
    }
    let cipher = cipher(password);
    let padding = BLOCK - plain.len() % BLOCK;
    let mut out = random::bytes(call, BLOCK);
    let padded: Vec<u8> =
        plain.iter().copied().chain(std::iter::repeat_n(u8::try_from(padding).unwrap_or(0), padding)).collect();
    for chunk in padded.chunks(BLOCK) {
        let mut block = Array::from([0; BLOCK]);
        for (byte, (a, b)) in block.iter_mut().zip(chunk.iter().zip(&out[out.len() - BLOCK..])) {
            *byte = a ^ b;
        }
        cipher.encrypt_block(&mut block);
        out.extend(block);
    }
    base64(&out)
}

fn decrypt(password: &[u8], encoded: &[u8]) -> Result<Vec<u8>, String> {
    if encoded.is_empty() {
        return Ok(Vec::new());
    }
    let bytes = from_base64(encoded)?;
    if bytes.len() < 2 * BLOCK || !bytes.len().is_multiple_of(BLOCK) {
        return Err("crypto/cipher: input not full blocks".to_owned());
    }
    let cipher = cipher(password);
    let mut plain = Vec::new();
    for at in (BLOCK..bytes.len()).step_by(BLOCK) {
        let mut block = Array::from([0; BLOCK]);
        block.copy_from_slice(&bytes[at..at + BLOCK]);
        cipher.decrypt_block(&mut block);
        plain.extend(block.iter().zip(&bytes[at - BLOCK..at]).map(|(a, b)| a ^ b));
    }
    let padding = usize::from(plain.last().copied().unwrap_or(0));
    match plain.len().checked_sub(padding) {
        Some(length) => {
            plain.truncate(length);
            Ok(plain)
        }
        None => Err("runtime error: slice bounds out of range".to_owned()),
    }
}
