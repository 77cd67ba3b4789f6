//! The tenant quota: how many operations one tenant may have in flight, so that none crowds out the others.
//!
//! Pure counting behind a small lock. Always: a tenant's count is the number of its live permits; a tenant
//! without one takes no memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// A handle; clones share the counts.
#[derive(Clone, Debug)]
pub struct TenantQuota {
    max: usize,
    held: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// One operation's place, given back when dropped.
#[derive(Debug)]
pub struct Permit {
    quota: TenantQuota,
    tenant: Arc<str>,
}

impl TenantQuota {
    pub fn new(max_in_flight: usize) -> TenantQuota {
        TenantQuota {
            max: max_in_flight.max(1),
            held: Arc::default(),
        }
    }

    /// `None` if the tenant has as many as it may.
    pub fn try_enter(&self, tenant: &Arc<str>) -> Option<Permit> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.get_mut(tenant) {
            Some(count) if *count >= self.max => return None,
            Some(count) => *count += 1,
            None => {
                held.insert(tenant.clone(), 1);
            }
        }
        drop(held);
        Some(Permit {
            quota: self.clone(),
            tenant: tenant.clone(),
        })
    }

    /// Tenants with something in flight.
    pub fn tenants(&self) -> usize {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self
            .quota
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_at_its_quota_is_refused_and_another_is_not() {
        let quota = TenantQuota::new(2);
        let (a, b) = ("a".into(), "b".into());
        let first = quota.try_enter(&a);
        let _second = quota.try_enter(&a).unwrap();
        assert!(quota.try_enter(&a).is_none());
        let _other = quota.try_enter(&b).unwrap();
        drop(first);
        let _third = quota.try_enter(&a).unwrap();
        assert!(quota.try_enter(&a).is_none());
    }

    #[test]
    fn a_tenant_without_operations_takes_no_memory() {
        let quota = TenantQuota::new(1);
        let permits: Vec<_> = (0..100)
            .map(|n| quota.try_enter(&n.to_string().into()))
            .collect();
        assert_eq!(quota.tenants(), 100);
        drop(permits);
        assert_eq!(quota.tenants(), 0);
    }
}
