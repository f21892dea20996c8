//! Statements about sign-ins that several replicas share: sessions one by one, programs that wait, steps of sign-ins under way,
//! and wrong codes. What ends here reaches the other replicas by the feed of changes.

use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;

use super::database::{About, Row, sql};
use super::replicas::{clocked, milliseconds};
use super::sign_ins::{read_device, read_digest, read_session};
use super::{Store, StoreError};
use gateway_types::UnixSeconds;
use gateway_types::opaque::Digest;
use gateway_types::sign_in_rows::{
    DeviceKey, EndedSession, KeptAnswer, KeptDevice, KeptSession, NewStep, SessionsOf, StepKind,
};

/// Distinguishes the key of proofs of sign-ins from others that are derived from that of `store.key_file`, which all replicas have.
pub(super) const PURPOSE: &[u8] = b"sign-ins of browsers";

/// Length of a proof, in bytes.
const PROOF_BYTES: usize = 16;

/// Times before which rows of sign-ins are of no use any more.
#[derive(Clone, Copy, Debug)]
pub struct Obsolete {
    /// Sessions that were used last before this.
    pub used_before: UnixSeconds,
    /// Sessions that began before this.
    pub opened_before: UnixSeconds,
    /// Programs that asked before this.
    pub asked_before: UnixSeconds,
    /// Time for which wrong codes count.
    pub guess_window: Duration,
}

impl Store {
    /// Returns a browser session and its parent, if it has one.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn browser_session(&self, issuer: Option<&str>, id: &Digest) -> Result<Vec<KeptSession>, StoreError> {
        let statement = "SELECT * FROM browser_sessions \
             WHERE (id = $1 OR id = (SELECT parent FROM browser_sessions WHERE id = $1)) AND coalesce(issuer, '') = $2";
        let statement = sql(statement).bind(id.as_bytes().as_slice()).bind(issuer.unwrap_or_default());
        statement.fetch_all(&self.readers).await?.iter().map(read_session).collect()
    }

    /// Returns the browser sessions of a user, of both kinds.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn browser_sessions_of(&self, issuer: Option<&str>, user: &str) -> Result<Vec<KeptSession>, StoreError> {
        let statement = sql("SELECT * FROM browser_sessions WHERE user_name = $1 AND coalesce(issuer, '') = $2");
        let statement = statement.bind(user).bind(issuer.unwrap_or_default());
        statement.fetch_all(&self.readers).await?.iter().map(read_session).collect()
    }

    /// Deletes browser sessions with their children; returns those of the public host.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn end_browser_sessions(
        &self,
        issuer: Option<&str>,
        of: &SessionsOf,
    ) -> Result<Vec<EndedSession>, StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        let rows = match of {
            SessionsOf::User(user) => {
                let statement = sql("DELETE FROM browser_sessions WHERE user_name = $1 RETURNING id, host, user_name");
                statement.bind(user.as_str()).fetch_all(&mut transaction).await?
            }
            SessionsOf::Provider { subject: None, session: None } => Vec::new(),
            SessionsOf::Provider { subject, session } => {
                let statement = "DELETE FROM browser_sessions WHERE host IS NULL AND issuer = $1 \
                     AND ($2 = '' OR subject = $2) AND ($3 = '' OR provider_session = $3) RETURNING id, host, user_name";
                let statement = sql(statement).bind(issuer.unwrap_or_default());
                let statement = statement.bind(subject.as_deref().unwrap_or_default());
                statement.bind(session.as_deref().unwrap_or_default()).fetch_all(&mut transaction).await?
            }
        };
        let rows = rows.iter().filter(|row| !matches!(row.get::<Option<&str>>("host"), Ok(Some(_))));
        let ended = rows.map(read_ended).collect::<Result<Vec<_>, _>>()?;
        if let SessionsOf::Provider { .. } = of {
            for EndedSession { id, user } in &ended {
                let statement = sql("DELETE FROM browser_sessions WHERE user_name = $1 AND parent = $2");
                let statement = statement.bind(user.as_str()).bind(id.as_bytes().as_slice());
                statement.execute(&mut transaction).await?;
            }
        }
        transaction.commit().await?;
        Ok(ended)
    }

    /// Deletes rows that are of no use any more. A session that another replica has used since stays, because that replica
    /// has written the use.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn clear_sign_ins(&self, obsolete: Obsolete) -> Result<(), StoreError> {
        sql("DELETE FROM browser_sessions WHERE used_at < $1 OR opened_at < $2")
            .bind(obsolete.used_before.get())
            .bind(obsolete.opened_before.get())
            .execute(&self.writer)
            .await?;
        let asked_before = obsolete.asked_before.get();
        sql("DELETE FROM device_sign_ins WHERE asked_at < $1").bind(asked_before).execute(&self.writer).await?;
        clocked!("DELETE FROM sign_in_steps WHERE ends_at <= ", "").execute(&self.writer).await?;
        let guesses = clocked!("DELETE FROM sign_in_guesses WHERE since + $1 <= ", "");
        guesses.bind(milliseconds(obsolete.guess_window)).execute(&self.writer).await?;
        Ok(())
    }

    /// Returns the request of a program.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn device_sign_in(&self, key: DeviceKey) -> Result<Option<KeptDevice>, StoreError> {
        let (statement, digest) = match &key {
            DeviceKey::Device(device) => (sql("SELECT * FROM device_sign_ins WHERE device = $1"), device),
            DeviceKey::Code(code) => {
                (sql("SELECT * FROM device_sign_ins WHERE user_code = $1 ORDER BY asked_at DESC LIMIT 1"), code)
            }
        };
        let row = statement.bind(digest.as_bytes().as_slice()).fetch_optional(&self.readers).await?;
        row.as_ref().map(read_device).transpose()
    }

    /// Writes a user's decision; `false` if the request is gone, or was decided before.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn decide_device_sign_in(&self, device: &Digest, answer: &KeptAnswer) -> Result<bool, StoreError> {
        let (answer, user) = match answer {
            KeptAnswer::None => return Ok(false),
            KeptAnswer::Yes(user) => ("yes", Some(user.as_str())),
            KeptAnswer::No => ("no", None),
        };
        let statement = "UPDATE device_sign_ins SET answer = $1, user_name = $2 WHERE device = $3 AND answer = 'none'";
        let statement = sql(statement).bind(answer).bind(user).bind(device.as_bytes().as_slice());
        Ok(statement.execute(&self.writer).await? > 0)
    }

    /// Takes a decided request, for one caller; `false` if another has it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn take_device_sign_in(&self, device: &Digest) -> Result<bool, StoreError> {
        let statement = sql("DELETE FROM device_sign_ins WHERE device = $1 AND answer <> 'none'");
        Ok(statement.bind(device.as_bytes().as_slice()).execute(&self.writer).await? > 0)
    }

    /// Writes steps of a sign-in. `false`, and nothing is written, if one of them is there already.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Randomness`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn add_sign_in_steps(&self, steps: &[NewStep]) -> Result<bool, StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        for NewStep { kind, id, contents, age_max } in steps {
            let sealed = self.sealer.seal(&step_row(*kind, id), contents)?;
            let statement = clocked!(
                "INSERT INTO sign_in_steps (id, kind, sealed, ends_at) VALUES ($1, $2, $3, $4 + ",
                ") ON CONFLICT (id) DO NOTHING"
            );
            let statement = statement.bind(id.as_bytes().as_slice()).bind(kind.as_str()).bind(sealed.as_slice());
            if statement.bind(milliseconds(*age_max)).execute(&mut transaction).await? == 0 {
                return Ok(false);
            }
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Takes a step, for one caller; `None` if there is none, another has it, or it is too old.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Unsealable`].
    ///
    /// # Cancel safety
    /// Dropped before it returns, the step may be gone.
    pub async fn take_sign_in_step(&self, kind: StepKind, id: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let statement =
            clocked!("DELETE FROM sign_in_steps WHERE id = $1 AND kind = $2 RETURNING sealed, ends_at - ", " AS rest");
        let statement = statement.bind(id.as_bytes().as_slice()).bind(kind.as_str());
        let mut transaction = self.write(About::Nothing).await?;
        let Some(row) = statement.fetch_optional(&mut transaction).await? else { return Ok(None) };
        transaction.commit().await?;
        if row.get::<i64>("rest")? <= 0 {
            return Ok(None);
        }
        let opened = self.sealer.open(&step_row(kind, id), row.get("sealed")?);
        opened.map(Some).ok_or(StoreError::Unsealable { table: "sign_in_steps" })
    }

    /// Counts one more guess for each key, and returns the counts. They begin anew once `window` has passed since the first.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is counted.
    pub async fn count_guesses(&self, keys: &[String], window: Duration) -> Result<Vec<u32>, StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        let mut counts = Vec::with_capacity(keys.len());
        for key in keys {
            let statement = clocked!(
                "INSERT INTO sign_in_guesses (key, since, guesses) VALUES ($1, ",
                ", 1) ON CONFLICT (key) DO UPDATE SET \
                 guesses = CASE WHEN sign_in_guesses.since + $2 > ",
                " THEN sign_in_guesses.guesses + 1 ELSE 1 END, \
                 since = CASE WHEN sign_in_guesses.since + $2 > ",
                " THEN sign_in_guesses.since ELSE ",
                " END RETURNING guesses"
            );
            let row = statement.bind(key.as_str()).bind(milliseconds(window)).fetch_one(&mut transaction).await?;
            counts.push(u32::try_from(row.get::<i64>("guesses")?).unwrap_or(u32::MAX));
        }
        transaction.commit().await?;
        Ok(counts)
    }

    /// Takes guesses back that were none.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn uncount_guesses(&self, keys: &[String]) -> Result<(), StoreError> {
        for key in keys {
            let statement = sql("UPDATE sign_in_guesses SET guesses = guesses - 1 WHERE key = $1 AND guesses > 0");
            statement.bind(key.as_str()).execute(&self.writer).await?;
        }
        Ok(())
    }

    /// Returns a proof that a gateway of this database has written `text`: a code over it that only these can make (HMAC,
    /// RFC 2104).
    #[must_use]
    pub fn prove_sign_in(&self, text: &[u8]) -> [u8; PROOF_BYTES] {
        proof_of(&self.sealer.sign(text))
    }

    /// Returns whether a proof is that of a gateway of this database, also of one that has another of the keys in front.
    #[must_use]
    pub fn proves_sign_in(&self, text: &[u8], proof: &[u8]) -> bool {
        self.sealer.any_signs(text, |code| verify_slices_are_equal(&proof_of(code), proof).is_ok())
    }
}

/// Returns the beginning of a code.
fn proof_of(code: &hmac::Tag) -> [u8; PROOF_BYTES] {
    let mut proof = [0; PROOF_BYTES];
    proof.iter_mut().zip(code.as_ref()).for_each(|(to, from)| *to = *from);
    proof
}

fn read_ended(row: &Row) -> Result<EndedSession, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "browser_sessions", column };
    Ok(EndedSession {
        id: read_digest(row.get("id")?).ok_or_else(|| corrupt("id"))?,
        user: row.get::<&str>("user_name")?.parse().map_err(|_| corrupt("user_name"))?,
    })
}

/// Names the row that a sealed step belongs to.
pub(super) fn step_row(kind: StepKind, id: &Digest) -> String {
    format!("sign_in_steps {} {}", kind.as_str(), id.encoded())
}

#[cfg(test)]
mod tests;
