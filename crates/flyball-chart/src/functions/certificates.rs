//! Certificates, such as for webhooks and TLS within a cluster.
//!
//! Their validity starts at the time of rendering; they are reproducible with the same seed and clock. Exceptions are
//! signatures by keys on elliptic curves other than P-256, which use randomness of the operating system.

use super::crypto::{PrivateKey, p256_secret, p256_sign};
use super::encoding::from_base64;
use super::{INT, STR, Table, cost, int, random, text};
use crate::context::Call;
use crate::value::object::{Field, Object, Record};
use crate::value::{ListKind, Type, Value};
use num_bigint::BigUint;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SignatureAlgorithm, SigningKey,
};
use x509_parser::prelude::FromDer;

const NAME: &str = "sprig.certificate";
const CERTIFICATE: Type = Type::Object(NAME);
const ITEMS: Type = Type::List(ListKind::Any);

pub(super) fn add(table: &mut Table) {
    table.add("genCA", cost::slow::<10_000_000>, &[STR, INT], |call, args| {
        authority(call, args, &PrivateKey::rsa(call))
    });
    table.add("genCAWithKey", cost::slow::<1_000_000>, &[STR, INT, STR], |call, args| {
        authority(call, args, &parse_key(&args[2])?)
    });
    table.add("genSelfSignedCert", cost::slow::<10_000_000>, &[STR, ITEMS, ITEMS, INT], |call, args| {
        self_signed(call, args, &PrivateKey::rsa(call))
    });
    table.add("genSelfSignedCertWithKey", cost::slow::<1_000_000>, &[STR, ITEMS, ITEMS, INT, STR], |call, args| {
        self_signed(call, args, &parse_key(&args[4])?)
    });
    table.add("genSignedCert", cost::slow::<10_000_000>, &[STR, ITEMS, ITEMS, INT, CERTIFICATE], |call, args| {
        signed(call, args, &PrivateKey::rsa(call))
    });
    table.add(
        "genSignedCertWithKey",
        cost::slow::<1_000_000>,
        &[STR, ITEMS, ITEMS, INT, CERTIFICATE, STR],
        |call, args| signed(call, args, &parse_key(&args[5])?),
    );
    table.add("buildCustomCert", cost::slow::<20_000>, &[STR, STR], |_, args| {
        let decoded = |at: usize, what: &str| {
            let bytes =
                from_base64(text(&args[at]).as_bytes()).map_err(|_| format!("unable to decode base64 {what}"))?;
            Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (certificate, key) = (decoded(0, "certificate")?, decoded(1, "private key")?);
        subject(&certificate)?;
        PrivateKey::parse(&key).map_err(|message| format!("error parsing private key: {message}"))?;
        Ok(pair(certificate, key))
    });
}

fn parse_key(key: &Value) -> Result<PrivateKey, String> {
    PrivateKey::parse(&text(key)).map_err(|message| format!("parsing private key: {message}"))
}

fn pair(certificate: String, key: String) -> Value {
    let fields = vec![Field::plain("Cert", Value::str(certificate)), Field::plain("Key", Value::str(key))];
    Value::object(Object::Record(Record { type_name: NAME, is_pointer: false, embedded: 0, fields, string: None }))
}

/// Returns a key with deterministic signatures, if its curve is supported.
struct Signer {
    pair: KeyPair,
    secret: Option<BigUint>,
}

impl PublicKeyData for Signer {
    fn der_bytes(&self) -> &[u8] {
        self.pair.der_bytes()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.pair.algorithm()
    }
}

impl SigningKey for Signer {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.secret.as_ref().map_or_else(|| self.pair.sign(message), |secret| Ok(p256_sign(secret, message)))
    }
}

fn signer(key: &PrivateKey) -> Result<Signer, String> {
    let pair =
        KeyPair::try_from(key.pkcs8.as_slice()).map_err(|error| format!("error parsing private key: {error}"))?;
    let is_p256 = pair.algorithm() == &rcgen::PKCS_ECDSA_P256_SHA256;
    Ok(Signer { pair, secret: p256_secret(key).filter(|_| is_p256) })
}

fn failed(error: rcgen::Error) -> String {
    format!("error creating certificate: {error}")
}

/// Subject and validity of a certificate.
fn params(call: &Call<'_>, name: &str, ips: &Value, names: &Value, days: i64) -> Result<CertificateParams, String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, dn_value(name, true));
    for ip in ips.items().unwrap_or_default() {
        let text = crate::format::display(&ip);
        if !matches!(ip, Value::Str(_)) {
            return Err(format!("error parsing ip: {text} is not a string"));
        }
        let address = text.parse().map_err(|_| format!("error parsing ip: {text}"))?;
        params.subject_alt_names.push(SanType::IpAddress(address));
    }
    for name in names.items().unwrap_or_default() {
        let text = crate::format::display(&name);
        if !matches!(name, Value::Str(_)) {
            return Err(format!("error processing alternate dns name: {text} is not a string"));
        }
        params.subject_alt_names.push(SanType::DnsName(text.try_into().map_err(failed)?));
    }
    let mut serial = random::bytes(call, 16);
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from(serial));
    let now = call.context.clock.now();
    let date = |seconds: i64| {
        let span = jiff::SignedDuration::from_secs(seconds);
        let time = now.checked_add(span).map_err(|_| format!("a validity of {days} days is out of range"))?;
        let date = time.to_zoned(jiff::tz::TimeZone::UTC);
        let number = |number: i8| u8::try_from(number).unwrap_or(0);
        // rcgen builds dates from days; the time of day is added here.
        let day = rcgen::date_time_ymd(date.year().into(), number(date.month()), number(date.day()));
        let time = i64::from(date.hour()) * 3600 + i64::from(date.minute()) * 60 + i64::from(date.second());
        Ok::<_, String>(day + std::time::Duration::from_secs(u64::try_from(time).unwrap_or(0)))
    };
    params.not_before = date(0)?;
    params.not_after = date(days.saturating_mul(86_400))?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.is_ca = IsCa::ExplicitNoCa;
    Ok(params)
}

/// Returns the text of a name, printable if possible, as Go does.
fn dn_value(text: &str, may_be_printable: bool) -> DnValue {
    match text.try_into() {
        Ok(printable) if may_be_printable => DnValue::PrintableString(printable),
        _ => DnValue::Utf8String(text.to_owned()),
    }
}

fn authority(call: &Call<'_>, args: &[Value], key: &PrivateKey) -> Result<Value, String> {
    let mut params = params(call, &text(&args[0]), &Value::Nil, &Value::Nil, int(&args[1]))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages.push(KeyUsagePurpose::KeyCertSign);
    let certificate = params.self_signed(&signer(key)?).map_err(failed)?;
    Ok(pair(unix_lines(&certificate.pem()), key.pem.clone()))
}

fn self_signed(call: &Call<'_>, args: &[Value], key: &PrivateKey) -> Result<Value, String> {
    let params = params(call, &text(&args[0]), &args[1], &args[2], int(&args[3]))?;
    let certificate = params.self_signed(&signer(key)?).map_err(failed)?;
    Ok(pair(unix_lines(&certificate.pem()), key.pem.clone()))
}

fn signed(call: &Call<'_>, args: &[Value], key: &PrivateKey) -> Result<Value, String> {
    let part = |name: &str| match &args[4] {
        Value::Object(object) => object.field(name).map(|value| text(&value).into_owned()).unwrap_or_default(),
        _ => String::new(),
    };
    let mut issuer = CertificateParams::default();
    issuer.distinguished_name = subject(&part("Cert"))?;
    let parent = PrivateKey::parse(&part("Key")).map_err(|message| format!("error parsing private key: {message}"))?;
    let issuer = Issuer::new(issuer, signer(&parent)?);
    let params = params(call, &text(&args[0]), &args[1], &args[2], int(&args[3]))?;
    let certificate = params.signed_by(&signer(key)?, &issuer).map_err(failed)?;
    Ok(pair(unix_lines(&certificate.pem()), key.pem.clone()))
}

fn unix_lines(pem: &str) -> String {
    pem.replace("\r\n", "\n")
}

/// Returns the subject of a certificate.
fn subject(pem: &str) -> Result<DistinguishedName, String> {
    let (_, block) =
        x509_parser::pem::parse_x509_pem(pem.as_bytes()).map_err(|_| "unable to decode certificate".to_owned())?;
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(&block.contents)
        .map_err(|error| format!("error parsing certificate: decodedCert.Bytes: {error}"))?;
    let mut name = DistinguishedName::new();
    for attribute in certificate.subject().iter_attributes() {
        let oid: Vec<u64> = attribute.attr_type().iter().map(Iterator::collect).unwrap_or_default();
        let kind = match oid.as_slice() {
            [2, 5, 4, 3] => DnType::CommonName,
            [2, 5, 4, 6] => DnType::CountryName,
            [2, 5, 4, 7] => DnType::LocalityName,
            [2, 5, 4, 8] => DnType::StateOrProvinceName,
            [2, 5, 4, 10] => DnType::OrganizationName,
            [2, 5, 4, 11] => DnType::OrganizationalUnitName,
            other => DnType::CustomDnType(other.to_vec()),
        };
        let is_printable = attribute.attr_value().tag() == x509_parser::asn1_rs::Tag::PrintableString;
        name.push(kind, dn_value(attribute.as_str().unwrap_or_default(), is_printable));
    }
    Ok(name)
}
