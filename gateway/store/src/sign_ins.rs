//! Statements about sign-in state that outlives the process: browser sessions, and programs that wait for their users.

use super::database::{About, Row, Transaction, sql};
use super::{Store, StoreError};
use gateway_types::UnixSeconds;
use gateway_types::opaque::Digest;
use gateway_types::sign_in_rows::{DeviceChange, KeptAnswer, KeptDevice};
use gateway_types::sign_in_rows::{KeptParent, KeptSession, SessionChange};

impl Store {
    /// Returns the browser sessions of an earlier process, most recently used first. Sessions of another identity
    /// provider, or of none if there is one now, are deleted: their users are not known here any more.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn browser_sessions(&self, issuer: Option<&str>) -> Result<Vec<KeptSession>, StoreError> {
        sql("DELETE FROM browser_sessions WHERE coalesce(issuer, '') <> $1")
            .bind(issuer.unwrap_or_default())
            .execute(&self.writer)
            .await?;
        let statement = "SELECT * FROM browser_sessions ORDER BY used_at DESC";
        let rows = sql(statement).fetch_all(&self.readers).await?;
        rows.iter().map(read_session).collect()
    }

    /// Writes changes of browser sessions. A session that was deleted meanwhile stays deleted.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn keep_browser_sessions(
        &self,
        issuer: Option<&str>,
        changes: &[SessionChange],
    ) -> Result<(), StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        for change in changes {
            match change {
                SessionChange::Begun(session) => begin(&mut transaction, issuer, session).await?,
                SessionChange::Used(id, used_at) => {
                    let statement = sql("UPDATE browser_sessions SET used_at = $1 WHERE id = $2 AND used_at < $1");
                    let statement = statement.bind(used_at.get()).bind(id.as_bytes().as_slice());
                    statement.execute(&mut transaction).await?;
                }
                SessionChange::Ended(id) => {
                    let statement = sql("DELETE FROM browser_sessions WHERE id = $1");
                    statement.bind(id.as_bytes().as_slice()).execute(&mut transaction).await?;
                }
            }
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Returns the device sign-ins that were pending when an earlier process ended.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn device_sign_ins(&self) -> Result<Vec<KeptDevice>, StoreError> {
        let rows = sql("SELECT * FROM device_sign_ins").fetch_all(&self.readers).await?;
        rows.iter().map(read_device).collect()
    }

    /// Writes changes of device sign-ins.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn keep_device_sign_ins(&self, changes: &[DeviceChange]) -> Result<(), StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        for change in changes {
            match change {
                DeviceChange::Is(device) => put(&mut transaction, device).await?,
                DeviceChange::Ended(device) => {
                    let statement = sql("DELETE FROM device_sign_ins WHERE device = $1");
                    statement.bind(device.as_bytes().as_slice()).execute(&mut transaction).await?;
                }
            }
        }
        transaction.commit().await?;
        Ok(())
    }
}

async fn begin(transaction: &mut Transaction, issuer: Option<&str>, session: &KeptSession) -> Result<(), StoreError> {
    let (subject, provider_session) = match &session.provider {
        Some((subject, session)) => (Some(&**subject), session.as_deref()),
        None => (None, None),
    };
    sql("INSERT INTO browser_sessions \
         (id, parent, host, user_name, issuer, subject, provider_session, peer, opened_at, used_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
         ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at")
    .bind(session.id.as_bytes().as_slice())
    .bind(session.of.as_ref().map(|of| of.parent.as_bytes().as_slice()).unwrap_or_default())
    .bind(session.of.as_ref().map(|of| &*of.host))
    .bind(session.user.as_str())
    .bind(issuer)
    .bind(subject)
    .bind(provider_session)
    .bind(session.peer.to_string())
    .bind(session.opened_at.get())
    .bind(session.used_at.get())
    .execute(transaction)
    .await?;
    Ok(())
}

async fn put(transaction: &mut Transaction, device: &KeptDevice) -> Result<(), StoreError> {
    let (answer, user) = match &device.answer {
        KeptAnswer::None => ("none", None),
        KeptAnswer::Yes(user) => ("yes", Some(user.as_str())),
        KeptAnswer::No => ("no", None),
    };
    sql("INSERT INTO device_sign_ins (device, user_code, machine, peer, asked_at, answer, user_name) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (device) DO UPDATE SET answer = excluded.answer, user_name = excluded.user_name \
         WHERE excluded.answer <> 'none'")
    .bind(device.device.as_bytes().as_slice())
    .bind(device.code.as_bytes().as_slice())
    .bind(device.machine.as_str())
    .bind(device.peer.to_string())
    .bind(device.asked_at.get())
    .bind(answer)
    .bind(user)
    .execute(transaction)
    .await?;
    Ok(())
}

pub(super) fn read_digest(bytes: &[u8]) -> Option<Digest> {
    bytes.try_into().ok().map(Digest::from_bytes)
}

pub(super) fn read_session(row: &Row) -> Result<KeptSession, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "browser_sessions", column };
    let host: Option<&str> = row.get("host")?;
    let of = host.map(|host| {
        let parent = read_digest(row.get("parent")?).ok_or_else(|| corrupt("parent"))?;
        Ok::<_, StoreError>(KeptParent { parent, host: host.into() })
    });
    let subject: Option<&str> = row.get("subject")?;
    let provider_session: Option<&str> = row.get("provider_session")?;
    Ok(KeptSession {
        id: read_digest(row.get("id")?).ok_or_else(|| corrupt("id"))?,
        user: row.get::<&str>("user_name")?.parse().map_err(|_| corrupt("user_name"))?,
        of: of.transpose()?,
        provider: subject.map(|subject| (subject.into(), provider_session.map(Into::into))),
        peer: row.get::<&str>("peer")?.parse().map_err(|_| corrupt("peer"))?,
        opened_at: UnixSeconds::new(row.get("opened_at")?),
        used_at: UnixSeconds::new(row.get("used_at")?),
    })
}

pub(super) fn read_device(row: &Row) -> Result<KeptDevice, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "device_sign_ins", column };
    let user: Option<&str> = row.get("user_name")?;
    Ok(KeptDevice {
        device: read_digest(row.get("device")?).ok_or_else(|| corrupt("device"))?,
        code: read_digest(row.get("user_code")?).ok_or_else(|| corrupt("user_code"))?,
        machine: row.get::<&str>("machine")?.to_owned(),
        peer: row.get::<&str>("peer")?.parse().map_err(|_| corrupt("peer"))?,
        asked_at: UnixSeconds::new(row.get("asked_at")?),
        answer: match (row.get::<&str>("answer")?, user) {
            ("none", None) => KeptAnswer::None,
            ("yes", Some(user)) => KeptAnswer::Yes(user.parse().map_err(|_| corrupt("user_name"))?),
            ("no", None) => KeptAnswer::No,
            _ => return Err(corrupt("answer")),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::each::each;
    use super::*;

    fn session(number: u8, of: Option<u8>) -> KeptSession {
        KeptSession {
            id: Digest::from_bytes([number; 32]),
            user: "ann".parse().unwrap(),
            of: of.map(|of| KeptParent { parent: Digest::from_bytes([of; 32]), host: "8080-app.zone".into() }),
            provider: of.is_none().then(|| ("subject".into(), Some("sid".into()))),
            peer: "2001:db8::1".parse().unwrap(),
            opened_at: UnixSeconds::new(100),
            used_at: UnixSeconds::new(200 - i64::from(number)),
        }
    }

    #[tokio::test]
    async fn sessions_are_read_as_they_were_written_and_of_one_provider_only() {
        each(async |store| {
            let issuer = Some("https://id.example");
            let (public, host) = (session(1, None), session(2, Some(1)));
            let begun = |session: &KeptSession| SessionChange::Begun(Box::new(session.clone()));
            store.keep_browser_sessions(issuer, &[begun(&public), begun(&host)]).await.unwrap();
            // Said again, as after a write that was not confirmed.
            store.keep_browser_sessions(issuer, &[begun(&public)]).await.unwrap();
            assert_eq!(store.browser_sessions(issuer).await.unwrap(), [public.clone(), host.clone()]);
            let used = [SessionChange::Used(public.id, UnixSeconds::new(900)), SessionChange::Ended(host.id)];
            store.keep_browser_sessions(issuer, &used).await.unwrap();
            let expected = KeptSession { used_at: UnixSeconds::new(900), ..public.clone() };
            assert_eq!(store.browser_sessions(issuer).await.unwrap(), [expected]);
            assert_eq!(store.browser_sessions(None).await.unwrap(), []);
            assert_eq!(store.browser_sessions(issuer).await.unwrap(), [], "they are gone for good");
        })
        .await;
    }

    #[tokio::test]
    async fn session_of_a_user_who_was_disabled_does_not_come_back() {
        each(async |store| {
            let (public, other) = (session(1, None), KeptSession { user: "bob".parse().unwrap(), ..session(2, None) });
            store.admit("i", "s", &public.user, &[], UnixSeconds::new(1)).await.unwrap();
            let changes = [&public, &other].map(|session| SessionChange::Begun(Box::new(session.clone())));
            store.keep_browser_sessions(None, &changes).await.unwrap();
            assert!(store.disable_user(&public.user, UnixSeconds::new(2)).await.unwrap());
            assert!(store.enable_user(&public.user).await.unwrap());
            // A use that is noted afterwards makes no session.
            let used = [SessionChange::Used(public.id, UnixSeconds::new(900))];
            store.keep_browser_sessions(None, &used).await.unwrap();
            assert_eq!(store.browser_sessions(None).await.unwrap(), [other]);
        })
        .await;
    }

    #[tokio::test]
    async fn programs_that_wait_are_read_as_they_were_written() {
        each(async |store| {
            let waiting = KeptDevice {
                device: Digest::from_bytes([1; 32]),
                code: Digest::from_bytes([2; 32]),
                machine: "ann@laptop".to_owned(),
                peer: "192.0.2.1".parse().unwrap(),
                asked_at: UnixSeconds::new(100),
                answer: KeptAnswer::None,
            };
            for answer in [KeptAnswer::None, KeptAnswer::Yes("ann".parse().unwrap()), KeptAnswer::No] {
                let device = KeptDevice { answer, ..waiting.clone() };
                store.keep_device_sign_ins(&[DeviceChange::Is(Box::new(device.clone()))]).await.unwrap();
                assert_eq!(store.device_sign_ins().await.unwrap(), [device]);
            }
            store.keep_device_sign_ins(&[DeviceChange::Ended(waiting.device)]).await.unwrap();
            assert_eq!(store.device_sign_ins().await.unwrap(), []);
        })
        .await;
    }
}
