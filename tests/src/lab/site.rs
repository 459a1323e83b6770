//! Where a lab stands, and what its cluster offers.

use anyhow::Result;

use super::{RealCluster, client};
use crate::needs::Offer;

/// Where a lab stands.
#[derive(Clone, Debug, Default)]
pub enum Site {
    /// On a small cluster of its own.
    #[default]
    Small,
    /// On a real Kubernetes that runs already. One lab at a time.
    Real(Box<RealCluster>),
}

impl Site {
    /// What its cluster offers, before a scenario's plan is known.
    ///
    /// # Errors
    /// When a cluster that should run does not answer.
    pub async fn offer(&self) -> Result<Offer> {
        match self {
            Self::Small => Ok(Offer::SMALL),
            Self::Real(cluster) => Ok(self.beside(Offer::of(&client(&cluster.kubeconfig).await?, false).await?)),
        }
    }

    /// What the server tells, and what is beside it.
    pub(super) fn beside(&self, server: Offer) -> Offer {
        match self {
            Self::Small => server,
            Self::Real(cluster) => Offer {
                installed: cluster.installed,
                test_driver: cluster.dra_test_driver.is_some(),
                upstream_evictor: cluster.upstream_evictor,
                ..server
            },
        }
    }
}
