//! The connection to a token: its module, its sessions, whether it is up.
//!
//! Always: a session is used by one thread at a time; after a failure of the token all sessions are given
//! up and nothing is tried until a check; a PIN that was refused is never tried again, because a token
//! that is asked too often locks itself. No error tells the PIN.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use cryptoki::{
    context::{CInitializeArgs, CInitializeFlags, Pkcs11},
    error::{Error, RvError},
    mechanism::MechanismType,
    object::ObjectHandle,
    session::{Session, SessionState, UserType},
    slot::Slot,
    types::RawAuthPin,
};
use ron_core::lock::{LEAF, LockDecl, RankedMutex};

use super::{Pkcs11Config, Reference, TokenName, objects};
use crate::{
    backend::BackendError,
    keys::{Algorithm, sealing::SealingError, signing::SigningError},
};

pub(super) struct Token {
    module: Pkcs11,
    config: Pkcs11Config,
    idle: RankedMutex<Vec<Session>>,
    /// Counts connections: a handle of an earlier one may name another object now.
    connection: AtomicU64,
    down: AtomicBool,
    pin_refused: AtomicBool,
    /// Jobs that hold a session.
    busy: AtomicUsize,
}

/// Why a job with a session failed.
pub(super) enum Failure {
    /// The caller's doing, or this object's: the token is well.
    Refused(BackendError),
    Token(Error),
}

impl From<SigningError> for Failure {
    fn from(refused: SigningError) -> Failure {
        Failure::Refused(refused.into())
    }
}

impl From<SealingError> for Failure {
    fn from(refused: SealingError) -> Failure {
        Failure::Refused(refused.into())
    }
}

/// Where an object was found, and in which connection.
#[derive(Clone)]
pub(super) struct Known(Arc<RankedMutex<Option<(u64, ObjectHandle)>>>);

impl Known {
    pub fn new() -> Known {
        Known(Arc::new(RankedMutex::new(KNOWN_LOCK, None)))
    }
}

impl Token {
    pub fn connect(config: Pkcs11Config) -> Result<(Token, Vec<Algorithm>), BackendError> {
        let module = Pkcs11::new(&config.module).map_err(|_| {
            let module = config.module.display();
            BackendError::Unavailable(format!("{module} is no PKCS#11 module"))
        })?;
        let token = Token {
            module,
            config,
            idle: RankedMutex::new(IDLE_LOCK, Vec::new()),
            connection: AtomicU64::new(1),
            down: AtomicBool::new(false),
            pin_refused: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
        };
        let slot = token.slot()?;
        let offered = token.module.get_mechanism_list(slot).map_err(unavailable)?;
        let algorithms = Algorithm::ALL.into_iter().filter(|algorithm| {
            let needed = objects::mechanisms(*algorithm);
            needed.is_some_and(|needed| needed.iter().all(|m: &MechanismType| offered.contains(m)))
        });
        let algorithms = algorithms.collect();
        token.check()?;
        Ok((token, algorithms))
    }

    /// Runs with a session of its own. If the token fails, it is down from here on.
    pub fn run<T>(
        &self,
        job: impl FnOnce(&Token, &Session) -> Result<T, Failure>,
    ) -> Result<T, BackendError> {
        if self.down.load(Ordering::Acquire) {
            let waiting = "it failed, and was not found again yet";
            return Err(BackendError::Unavailable(waiting.to_owned()));
        }
        self.busy.fetch_add(1, Ordering::AcqRel);
        let done = self.run_up(job);
        self.busy.fetch_sub(1, Ordering::AcqRel);
        done
    }

    fn run_up<T>(
        &self,
        job: impl FnOnce(&Token, &Session) -> Result<T, Failure>,
    ) -> Result<T, BackendError> {
        let idle = self.idle.lock().pop();
        let session = match idle {
            Some(session) => session,
            None => self.open().inspect_err(|_| self.fail())?,
        };
        match job(self, &session) {
            Ok(done) => {
                self.idle.lock().push(session);
                Ok(done)
            }
            Err(Failure::Refused(refused)) => {
                self.idle.lock().push(session);
                Err(refused)
            }
            Err(Failure::Token(error)) => {
                drop(session);
                self.fail();
                Err(unavailable(error))
            }
        }
    }

    /// Up again if a session can be had that is logged in and answers.
    pub fn check(&self) -> Result<(), BackendError> {
        let idle = self.idle.lock().pop();
        let session = idle.filter(is_well);
        let session = match session {
            Some(session) => session,
            None => {
                self.fail();
                match self.open() {
                    Ok(session) => session,
                    Err(error) if self.pin_refused.load(Ordering::Acquire) => return Err(error),
                    Err(error) => self.begin_again(error)?,
                }
            }
        };
        self.idle.lock().push(session);
        self.down.store(false, Ordering::Release);
        Ok(())
    }

    /// The object of a version; the last place it was seen in is tried only within one connection.
    pub fn find(
        &self,
        session: &Session,
        known: &Known,
        algorithm: Algorithm,
        reference: &Reference,
    ) -> Result<ObjectHandle, Failure> {
        let connection = self.connection.load(Ordering::Acquire);
        if let Some((seen, object)) = *known.0.lock()
            && seen == connection
        {
            return Ok(object);
        }
        let found = objects::find_all(session, algorithm, reference)?;
        match found.first() {
            Some(object) => {
                *known.0.lock() = Some((connection, *object));
                Ok(*object)
            }
            // Who is logged out sees no private object at all.
            None if is_well(session) => Err(Failure::Refused(BackendError::Damaged(
                reference.id.clone(),
            ))),
            None => Err(Failure::Token(Error::Pkcs11(
                RvError::UserNotLoggedIn,
                cryptoki::context::Function::FindObjects,
            ))),
        }
    }

    /// A module may remember a token that was taken away, and only forget it when it begins anew. Not while
    /// somebody is within it: the module is one for the whole process.
    fn begin_again(&self, error: BackendError) -> Result<Session, BackendError> {
        if self.busy.load(Ordering::Acquire) > 0 {
            return Err(error);
        }
        let _ = self.module.clone().finalize();
        self.open()
    }

    fn fail(&self) {
        self.down.store(true, Ordering::Release);
        self.connection.fetch_add(1, Ordering::AcqRel);
        let sessions = std::mem::take(&mut *self.idle.lock());
        drop(sessions);
    }

    fn open(&self) -> Result<Session, BackendError> {
        let slot = self.slot()?;
        let session = self.module.open_rw_session(slot).map_err(unavailable)?;
        if self.pin_refused.load(Ordering::Acquire) {
            let refused = "the token refused the PIN; it is not tried again";
            return Err(BackendError::Unavailable(refused.to_owned()));
        }
        let pin = RawAuthPin::new(Box::new(self.config.pin.expose().to_vec()));
        match session.login_with_raw(UserType::User, &pin) {
            Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(session),
            Err(error) => {
                if let Error::Pkcs11(
                    RvError::PinIncorrect
                    | RvError::PinInvalid
                    | RvError::PinLenRange
                    | RvError::PinExpired
                    | RvError::PinLocked,
                    _,
                ) = error
                {
                    self.pin_refused.store(true, Ordering::Release);
                }
                Err(unavailable(error))
            }
        }
    }

    fn slot(&self) -> Result<Slot, BackendError> {
        let slots = match self.module.get_slots_with_initialized_token() {
            Err(Error::Pkcs11(RvError::CryptokiNotInitialized, _)) => {
                let threads = CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK);
                match self.module.initialize(threads) {
                    Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
                    Err(error) => return Err(unavailable(error)),
                }
                self.module.get_slots_with_initialized_token()
            }
            slots => slots,
        };
        let named = |slot: &Slot| match &self.config.token {
            TokenName::Slot(number) => slot.id() == *number,
            TokenName::Label(label) => {
                let info = self.module.get_token_info(*slot);
                info.is_ok_and(|info| info.label() == label)
            }
        };
        let found = slots.map_err(unavailable)?.into_iter().find(named);
        found.ok_or_else(|| {
            let missing = match &self.config.token {
                TokenName::Label(label) => format!("there is no token with the label {label:?}"),
                TokenName::Slot(number) => format!("there is no token in slot {number}"),
            };
            BackendError::Unavailable(missing)
        })
    }
}

/// Logged in, and it answers.
pub(super) fn is_well(session: &Session) -> bool {
    let info = session.get_session_info();
    info.is_ok_and(|info| matches!(info.session_state(), SessionState::RwUser))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Token(error)
    }
}

const IDLE_LOCK: LockDecl = LockDecl {
    name: "pkcs11_sessions",
    rank: LEAF,
    guards: "sessions that nobody uses",
};

const KNOWN_LOCK: LockDecl = LockDecl {
    name: "pkcs11_object",
    rank: LEAF,
    guards: "where a key's object was found",
};

fn unavailable(error: Error) -> BackendError {
    BackendError::Unavailable(match error {
        Error::Pkcs11(reason, function) => format!("{function:?} answers {reason:?}"),
        other => other.to_string(),
    })
}
