//! Assertions, which service accounts sign: JSON Web Tokens (RFC 7519) with RS256 (RFC 7518 §3.3).
//!
//! Google's libraries sign two kinds. One asks for an access token (RFC 7523): its audience is the
//! address at which such tokens are given. The other is itself shown as bearer
//! (<https://google.aip.dev/auth/4111>): its audience is the service, or it has a scope in its
//! place. Both are read and checked here, against the public key that the catalog has.

use crate::error::{ApiError, ApiResult};
use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Map, Value};
use weir_base::limits::api::{
    ASSERTION_SECONDS, CLOCK_SKEW_SECONDS, MAX_ASSERTION, MAX_PUBLIC_KEY,
};
use weir_control::{AccountKey, Status};

/// Audiences of the services that this server is, as Google's libraries write them.
const SERVICES: &[&str] = &[
    "https://netapp.googleapis.com/",
    "https://file.googleapis.com/",
];
/// Audience that Google's own sign-in writes wherever it asks for an access token.
const GOOGLES: &str = "https://oauth2.googleapis.com/token";
/// Scope that covers the services.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// A signed set of claims. Nothing of it is believed before [`Assertion::check`].
pub struct Assertion<'t> {
    claims: Map<String, Value>,
    signed: &'t str,
    signature: Vec<u8>,
}

/// Use that an assertion is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It asks for an access token.
    Grant,
    /// It is shown as bearer.
    Bearer,
}

/// Returns true if a bearer's text has the form of an assertion: three parts with dots between.
pub fn is_assertion(text: &str) -> bool {
    text.split('.').count() == 3
}

fn wrong(message: impl Into<String>) -> Box<ApiError> {
    ApiError::new(Status::Unauthenticated, "ASSERTION_INVALID", message)
}

/// Checks a public key: RSA of 2048 to 8192 bits, in PEM.
///
/// # Errors
/// INVALID_ARGUMENT naming `field`.
pub fn check_key(pem: &str, field: &str) -> ApiResult<()> {
    let key = (pem.len() <= MAX_PUBLIC_KEY)
        .then(|| SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()).ok())
        .flatten();
    let parsed = key.and_then(|key| {
        aws_lc_rs::signature::ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &*key).ok()
    });
    match parsed {
        Some(_) => Ok(()),
        None => Err(ApiError::field(
            field,
            format!(
                "Invalid '{field}': a public RSA key of 2048 to 8192 bits in PEM (BEGIN PUBLIC KEY)"
            ),
        )),
    }
}

impl<'t> Assertion<'t> {
    /// Takes an assertion apart.
    ///
    /// # Errors
    /// UNAUTHENTICATED: it is none.
    pub fn parse(text: &'t str) -> ApiResult<Assertion<'t>> {
        if text.len() > MAX_ASSERTION {
            return Err(wrong(format!(
                "the assertion is longer than {MAX_ASSERTION} bytes"
            )));
        }
        let parts = text.rsplit_once('.');
        let parts = parts.and_then(|(signed, signature)| {
            let (header, claims) = signed.split_once('.')?;
            Some((signed, header, claims, signature))
        });
        let (signed, header, claims, signature) =
            parts.ok_or_else(|| wrong("the assertion is no signed JSON Web Token"))?;
        let header = object(header, "header")?;
        if header.get("alg").and_then(Value::as_str) != Some("RS256") {
            return Err(wrong("the assertion's algorithm ('alg') is not RS256"));
        }
        if header.contains_key("crit") {
            return Err(wrong(
                "the assertion has extensions that have to be understood ('crit')",
            ));
        }
        let signature = URL_SAFE_NO_PAD.decode(signature);
        Ok(Assertion {
            claims: object(claims, "claims")?,
            signed,
            signature: signature.map_err(|_| wrong("the assertion's signature is no base64url"))?,
        })
    }

    /// Returns the name of the account that the assertion says it is of.
    ///
    /// # Errors
    /// UNAUTHENTICATED: there is none, or it speaks for another one.
    pub fn account(&self) -> ApiResult<&str> {
        let issuer = self.text("iss").unwrap_or_default();
        if self.claims.contains_key("sub") && self.text("sub") != Some(issuer) {
            return Err(wrong(
                "the assertion is about another account ('sub') than its own ('iss')",
            ));
        }
        let name = issuer.rsplit_once('@').map(|(name, _)| name);
        name.filter(|name| !name.is_empty()).ok_or_else(|| {
            wrong("the assertion's issuer ('iss') is no service account's client_email")
        })
    }

    fn text(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim).and_then(Value::as_str)
    }

    /// Returns a time in seconds since 1970; libraries write whole numbers, some fractions.
    fn time(&self, claim: &str) -> Option<i64> {
        let value = self.claims.get(claim)?;
        #[allow(clippy::cast_possible_truncation)] // It saturates, and such times are refused.
        value.as_i64().or_else(|| value.as_f64().map(|f| f as i64))
    }

    /// Checks the signature, the times and the audience. `now` is in seconds since 1970. Returns
    /// the seconds for which the assertion goes on to count.
    ///
    /// # Errors
    /// UNAUTHENTICATED: it does not count, and why.
    pub fn check(&self, key: &AccountKey, used: Use, now: i64) -> ApiResult<i64> {
        let public = SubjectPublicKeyInfoDer::from_pem_slice(key.public.as_bytes());
        let public = public.map_err(|_| wrong("the account's key is damaged"))?;
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &*public);
        let good = public.verify(self.signed.as_bytes(), &self.signature);
        good.map_err(|_| wrong("the assertion is not signed with the account's key"))?;
        let (Some(issued), Some(expires)) = (self.time("iat"), self.time("exp")) else {
            return Err(wrong("the assertion has no times ('iat', 'exp')"));
        };
        let begins = issued.max(self.time("nbf").unwrap_or(issued));
        if begins > now.saturating_add(CLOCK_SKEW_SECONDS) {
            return Err(wrong(format!(
                "the assertion begins to count in {} s: set the clocks",
                begins.saturating_sub(now)
            )));
        }
        if expires.saturating_sub(issued) > ASSERTION_SECONDS {
            return Err(wrong(format!(
                "the assertion counts for more than {ASSERTION_SECONDS} s"
            )));
        }
        let left = expires.saturating_sub(now);
        if left <= 0 {
            return Err(wrong(format!(
                "the assertion ended {} s ago",
                left.unsigned_abs()
            )));
        }
        self.check_audience(key, used)?;
        Ok(left)
    }

    fn check_audience(&self, key: &AccountKey, used: Use) -> ApiResult<()> {
        let own = &*key.token_uri;
        let audience = self.text("aud");
        let good = match (used, audience) {
            (_, Some(audience)) if audience == own || audience == GOOGLES => true,
            (Use::Grant, _) => false,
            (Use::Bearer, None | Some("")) => {
                // Go's libraries write an empty one.
                let none = audience.is_some() || !self.claims.contains_key("aud");
                let scopes = self.text("scope").unwrap_or_default();
                none && scopes.split(' ').any(|s| s == SCOPE)
            }
            (Use::Bearer, Some(audience)) => {
                SERVICES.contains(&audience) || origin(audience) == origin(own)
            }
        };
        match good {
            true => Ok(()),
            false => Err(wrong(format!(
                "the assertion is for another audience ('aud') than {own}"
            ))),
        }
    }
}

/// Returns scheme and authority of an address.
fn origin(address: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = address.split_once("://")?;
    Some((scheme, rest.split('/').next().unwrap_or(rest)))
}

/// Decodes a part of an assertion.
fn object(part: &str, what: &str) -> ApiResult<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok();
    let value = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    match value {
        Some(Value::Object(fields)) => Ok(fields),
        _ => Err(wrong(format!("the assertion's {what} cannot be read"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::{KeyPair, KeySize};
    use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
    use serde_json::json;

    const NOW: i64 = 1_800_000_000;
    const URI: &str = "https://weir.example:8049/token";

    struct Account {
        pair: KeyPair,
        key: AccountKey,
    }

    fn account() -> Account {
        let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        let body = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
        let public = format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n");
        check_key(&public, "publicKey").unwrap();
        let token_uri = URI.to_owned();
        Account {
            pair,
            key: AccountKey { public, token_uri },
        }
    }

    impl Account {
        fn sign(&self, header: &Value, claims: &Value) -> String {
            let part = |v: &Value| URL_SAFE_NO_PAD.encode(v.to_string());
            let signed = format!("{}.{}", part(header), part(claims));
            let mut signature = vec![0; self.pair.public_modulus_len()];
            let random = SystemRandom::new();
            self.pair
                .sign(
                    &RSA_PKCS1_SHA256,
                    &random,
                    signed.as_bytes(),
                    &mut signature,
                )
                .unwrap();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        }

        fn says(&self, used: Use, change: &Value) -> Result<i64, String> {
            let mut claims = json!({"iss": "ci@p1.weir.internal", "iat": NOW - 10,
                "exp": NOW + 3590, "aud": URI});
            for (name, value) in change.as_object().unwrap() {
                let claims = claims.as_object_mut().unwrap();
                match value {
                    Value::Null => drop(claims.remove(name)),
                    value => drop(claims.insert(name.clone(), value.clone())),
                }
            }
            let text = self.sign(&json!({"alg": "RS256", "typ": "JWT"}), &claims);
            assert!(is_assertion(&text));
            let assertion = Assertion::parse(&text).map_err(|e| e.message)?;
            assertion.account().map_err(|e| e.message)?;
            let left = assertion.check(&self.key, used, NOW);
            left.map_err(|e| e.message)
        }
    }

    #[test]
    fn what_counts_counts_until_it_ends() {
        let account = account();
        for used in [Use::Grant, Use::Bearer] {
            assert_eq!(account.says(used, &json!({})), Ok(3590));
            assert_eq!(account.says(used, &json!({"exp": NOW + 1})), Ok(1));
            let googles = json!({"aud": "https://oauth2.googleapis.com/token"});
            assert_eq!(account.says(used, &googles), Ok(3590));
            assert_eq!(
                account.says(used, &json!({"iat": NOW + 30, "exp": NOW + 3630})),
                Ok(3630)
            );
        }
        for change in [
            json!({"aud": "https://netapp.googleapis.com/", "sub": "ci@p1.weir.internal"}),
            json!({"aud": "https://file.googleapis.com/"}),
            json!({"aud": "https://weir.example:8049/google.cloud.netapp.v1.NetApp"}),
            json!({"aud": null, "scope": "x https://www.googleapis.com/auth/cloud-platform"}),
            json!({"aud": "", "scope": "https://www.googleapis.com/auth/cloud-platform"}),
        ] {
            assert_eq!(account.says(Use::Bearer, &change), Ok(3590), "{change}");
            assert!(account.says(Use::Grant, &change).is_err(), "{change}");
        }
    }

    #[test]
    fn what_does_not_count_says_why() {
        let account = account();
        for (change, why) in [
            (json!({"exp": NOW}), "ended"),
            (json!({"exp": NOW - 100, "iat": NOW - 200}), "ended"),
            (json!({"exp": NOW + 3591}), "more than 3600"),
            (json!({"iat": NOW + 61, "exp": NOW + 100}), "begins"),
            (json!({"nbf": NOW + 61}), "begins"),
            (json!({"iat": null}), "no times"),
            (json!({"exp": "soon"}), "no times"),
            (json!({"exp": 1e300}), "more than"),
            (json!({"iat": i64::MIN, "exp": i64::MAX}), "more than"),
            (json!({"aud": "https://weir.example/token"}), "audience"),
            (
                json!({"aud": "https://weir.example:8049.evil/token"}),
                "audience",
            ),
            (
                json!({"aud": "https://storage.googleapis.com/"}),
                "audience",
            ),
            (json!({"aud": null}), "audience"),
            (json!({"aud": ""}), "audience"),
            (json!({"aud": "", "scope": "x"}), "audience"),
            (json!({"aud": [URI]}), "audience"),
            (json!({"sub": "root@p1.weir.internal"}), "another account"),
            (json!({"sub": 7}), "another account"),
            (json!({"iss": "ci"}), "no service account"),
            (json!({"iss": "@x"}), "no service account"),
            (json!({"iss": null}), "no service account"),
        ] {
            let said = account.says(Use::Bearer, &change).unwrap_err();
            assert!(said.contains(why), "{change}: {said}");
        }
        let claims = json!({"iss": "ci@x", "iat": NOW, "exp": NOW + 60, "aud": URI});
        for (header, why) in [
            (json!({"alg": "none"}), "RS256"),
            (json!({"alg": "HS256"}), "RS256"),
            (json!({}), "RS256"),
            (json!({"alg": "RS256", "crit": ["x"]}), "crit"),
        ] {
            let text = account.sign(&header, &claims);
            let said = Assertion::parse(&text).err().unwrap().message;
            assert!(said.contains(why), "{header}: {said}");
        }
        // Another key's signature, a changed claim, a signature cut off.
        let other = super::tests::account();
        let text = other.sign(&json!({"alg": "RS256"}), &claims);
        let changed = text.replacen('.', ".e30", 1);
        let cut = &text[..text.len() - 6];
        for text in [&*text, cut] {
            let assertion = Assertion::parse(text).ok().unwrap();
            let said = assertion.check(&account.key, Use::Grant, NOW).unwrap_err();
            assert!(said.message.contains("not signed"), "{}", said.message);
        }
        assert!(Assertion::parse(&changed).is_err());
        for text in [
            "",
            "..",
            "a.b.c",
            "e30.e30.e30",
            "e30.e30",
            &"x".repeat(5000),
        ] {
            assert!(Assertion::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_keys_of_rsa_are_taken() {
        let small = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----\n";
        for pem in ["", "x", small, &account().key.public.repeat(9)] {
            assert!(check_key(pem, "publicKey").is_err(), "{pem}");
        }
    }
}
