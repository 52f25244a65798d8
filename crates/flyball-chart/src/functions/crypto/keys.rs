//! Private keys: generated from the rendering's seed, encoded as Go does.

use super::super::random;
use super::der::{BITS, OCTETS, SEQUENCE, from_pem, integer, pem, wrap};
use crate::context::Call;
use num_bigint::BigUint;
use ring::{digest, hmac};

/// Size of an RSA key in bits.
const RSA_BITS: usize = 2048;
/// Rounds of the primality test.
const WITNESSES: usize = 20;

const RSA: &[u8] = &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const EC: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// Order of the curve P-256.
const P256_ORDER: &str = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";
const ED25519: &[u8] = &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70];

/// A key that can sign certificates.
pub(crate) struct PrivateKey {
    /// In PEM.
    pub(crate) pem: String,
    pub(crate) pkcs8: Vec<u8>,
}

/// `genPrivateKey`: a key in PEM, or an error message.
pub(super) fn generate(call: &Call<'_>, kind: &str) -> String {
    match kind {
        "" | "rsa" => PrivateKey::rsa(call).pem,
        "ecdsa" => ecdsa(call),
        "ed25519" => {
            let seed = wrap(OCTETS, &wrap(OCTETS, &random::bytes(call, 32)));
            pem("PRIVATE KEY", &wrap(SEQUENCE, &[&[2, 1, 0], ED25519, &seed].concat()))
        }
        "dsa" => dsa(call),
        other => format!("Unknown type {other}"),
    }
}

impl PrivateKey {
    /// Generates an RSA key.
    pub(crate) fn rsa(call: &Call<'_>) -> PrivateKey {
        let one = BigUint::from(1u8);
        let exponent = BigUint::from(65_537u32);
        let (p, q, d) = loop {
            let (p, q) = (prime(call, RSA_BITS / 2), prime(call, RSA_BITS / 2));
            if p == q {
                continue;
            }
            if let Some(d) = exponent.modinv(&((&p - &one) * (&q - &one))) {
                break (p, q, d);
            }
        };
        let inverse = q.modinv(&p).unwrap_or_default();
        let numbers = [
            BigUint::default(),
            &p * &q,
            exponent,
            d.clone(),
            p.clone(),
            q.clone(),
            &d % (&p - &one),
            &d % (&q - &one),
            inverse,
        ];
        let key = wrap(SEQUENCE, &numbers.iter().flat_map(integer).collect::<Vec<u8>>());
        PrivateKey { pem: pem("RSA PRIVATE KEY", &key), pkcs8: pkcs8(RSA, &key) }
    }

    /// Parses a key.
    ///
    /// # Errors
    ///
    /// Fails if the key cannot sign certificates.
    pub(crate) fn parse(text: &str) -> Result<PrivateKey, String> {
        let (kind, der) = from_pem(text).ok_or("no PEM data in input")?;
        let pkcs8 = match kind.as_str() {
            "PRIVATE KEY" => der,
            "RSA PRIVATE KEY" => pkcs8(RSA, &der),
            "EC PRIVATE KEY" => pkcs8(&wrap(SEQUENCE, &[EC, P256].concat()), &der),
            "DSA PRIVATE KEY" => return Err("x509: unsupported public key type: *dsa.PublicKey".to_owned()),
            other => match other.strip_suffix(" PRIVATE KEY") {
                Some(kind) => return Err(format!("invalid private key type {kind}")),
                None => return Err(format!("no private key data in PEM block of type {other}")),
            },
        };
        Ok(PrivateKey { pem: text.to_owned(), pkcs8 })
    }
}

fn pkcs8(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    wrap(SEQUENCE, &[&[2, 1, 0], algorithm, &wrap(OCTETS, key)].concat())
}

fn number(call: &Call<'_>, bits: usize) -> BigUint {
    BigUint::from_bytes_be(&random::bytes(call, bits / 8))
}

/// Generates a prime with this number of bits. Its first two bits are ones, so that a product of two primes has twice
/// as many bits.
fn prime(call: &Call<'_>, bits: usize) -> BigUint {
    loop {
        let mut candidate = number(call, bits);
        for bit in [0, bits - 1, bits - 2] {
            candidate.set_bit(u64::try_from(bit).unwrap_or(0), true);
        }
        if is_prime(call, &candidate) {
            return candidate;
        }
    }
}

/// Returns true if a number is probably prime: the Miller–Rabin test, after trial division by small primes.
fn is_prime(call: &Call<'_>, number: &BigUint) -> bool {
    let (zero, one, two) = (BigUint::default(), BigUint::from(1u8), BigUint::from(2u8));
    let is_small_prime = |n: &u32| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    for small in (3..2000u32).filter(is_small_prime) {
        if number % small == zero {
            return *number == BigUint::from(small);
        }
    }
    let less = number - &one;
    let shift = less.trailing_zeros().unwrap_or(0);
    let odd = &less >> shift;
    let bits = usize::try_from(number.bits()).unwrap_or(0);
    // One base detects nearly all composites; the others are random.
    let bases = std::iter::once(two.clone()).chain((0..WITNESSES).map(|_| self::number(call, bits - 8) + &two));
    'bases: for base in bases {
        let mut power = base.modpow(&odd, number);
        if power == one || power == less {
            continue;
        }
        for _ in 1..shift {
            power = power.modpow(&two, number);
            if power == less {
                continue 'bases;
            }
        }
        return false;
    }
    true
}

/// Generates a DSA key with numbers of 2048 and 256 bits.
fn dsa(call: &Call<'_>) -> String {
    let one = BigUint::from(1u8);
    let q = prime(call, 256);
    let p = loop {
        let mut candidate = number(call, 2048);
        candidate.set_bit(2047, true);
        let rest = &candidate % (&q << 1u8);
        candidate = candidate - rest + &one;
        if candidate.bits() == 2048 && is_prime(call, &candidate) {
            break candidate;
        }
    };
    let generator = BigUint::from(2u8).modpow(&((&p - &one) / &q), &p);
    let secret = number(call, 512) % (&q - &one) + &one;
    let public = generator.modpow(&secret, &p);
    let numbers = [BigUint::default(), p, q, generator, public, secret];
    pem("DSA PRIVATE KEY", &wrap(SEQUENCE, &numbers.iter().flat_map(integer).collect::<Vec<u8>>()))
}

/// Generates a key on the curve P-256.
fn ecdsa(call: &Call<'_>) -> String {
    let secret = number(call, 512) % (hex(P256_ORDER) - 1u8) + 1u8;
    let (x, y) = multiply(&secret);
    let point = [&[0, 4][..], &fixed(&x), &fixed(&y)].concat();
    let parts = [&[2, 1, 1][..], &wrap(OCTETS, &fixed(&secret)), &wrap(0xa0, P256), &wrap(0xa1, &wrap(BITS, &point))];
    pem("EC PRIVATE KEY", &wrap(SEQUENCE, &parts.concat()))
}

/// Returns the secret scalar of a key on the curve P-256, if it is on this curve.
pub(crate) fn p256_secret(key: &PrivateKey) -> Option<BigUint> {
    /// DER before the secret, with its length.
    const VERSION: &[u8] = &[2, 1, 1, 4, 32];
    let after =
        |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).position(|found| found == part).map(|at| at + part.len());
    let key = &key.pkcs8[after(&key.pkcs8, P256)?..];
    let secret = key.get(after(key, VERSION)?..)?.get(..32)?;
    Some(BigUint::from_bytes_be(secret))
}

/// Signs a message with a secret on the curve P-256, deterministically, by <https://www.rfc-editor.org/rfc/rfc6979>.
pub(crate) fn p256_sign(secret: &BigUint, message: &[u8]) -> Vec<u8> {
    let order = hex(P256_ORDER);
    let sum = BigUint::from_bytes_be(digest::digest(&digest::SHA256, message).as_ref());
    let seed = [fixed(secret), fixed(&(&sum % &order))].concat();
    let mac = |key: &[u8], parts: &[&[u8]]| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &parts.concat()).as_ref().to_vec()
    };
    let (mut key, mut value) = (vec![0; 32], vec![1; 32]);
    for round in [0, 1] {
        key = mac(&key, &[&value, &[round], &seed]);
        value = mac(&key, &[&value]);
    }
    loop {
        value = mac(&key, &[&value]);
        let nonce = BigUint::from_bytes_be(&value);
        if nonce != BigUint::default()
            && nonce < order
            && let Some(inverse) = nonce.modinv(&order)
        {
            let r = multiply(&nonce).0 % &order;
            let s = inverse * (&sum + &r * secret) % &order;
            if r != BigUint::default() && s != BigUint::default() {
                return wrap(SEQUENCE, &[&r, &s].into_iter().flat_map(integer).collect::<Vec<u8>>());
            }
        }
        key = mac(&key, &[&value, &[0]]);
        value = mac(&key, &[&value]);
    }
}

/// Generates a number below the order of the curve P-256, in 32 bytes.
fn fixed(number: &BigUint) -> Vec<u8> {
    let bytes = number.to_bytes_be();
    [vec![0; 32 - bytes.len()], bytes].concat()
}

fn hex(digits: &str) -> BigUint {
    BigUint::parse_bytes(digits.as_bytes(), 16).expect("a constant number")
}

/// Multiplies the curve's base point by a scalar.
fn multiply(factor: &BigUint) -> (BigUint, BigUint) {
    let p = hex("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff");
    let base = (
        hex("6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"),
        hex("4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"),
    );
    let minus = |a: &BigUint, b: &BigUint| (a + &p - b % &p) % &p;
    let step = |slope: &BigUint, a: &(BigUint, BigUint), x: &BigUint| {
        let third = minus(&minus(&(slope * slope % &p), &a.0), x);
        let y = minus(&(slope * minus(&a.0, &third) % &p), &a.1);
        (third, y)
    };
    let divide = |a: BigUint, b: BigUint| a * b.modinv(&p).unwrap_or_default() % &p;
    let mut sum: Option<(BigUint, BigUint)> = None;
    for bit in (0..factor.bits()).rev() {
        // The curve's coefficient is −3.
        sum = sum.map(|point| {
            let top = minus(&(&point.0 * &point.0 * 3u8 % &p), &BigUint::from(3u8));
            step(&divide(top, &point.1 * 2u8 % &p), &point, &point.0)
        });
        if factor.bit(bit) {
            sum = Some(match sum {
                None => base.clone(),
                Some(point) => step(&divide(minus(&base.1, &point.1), minus(&base.0, &point.0)), &point, &base.0),
            });
        }
    }
    sum.unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_match_the_rfc() {
        let secret = hex("c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721");
        let r = hex("efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716");
        let s = hex("f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8");
        let expected = wrap(SEQUENCE, &[&r, &s].into_iter().flat_map(integer).collect::<Vec<u8>>());
        assert_eq!(p256_sign(&secret, b"sample"), expected);
    }
}
