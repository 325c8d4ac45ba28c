"""Relations between operands that say more than their bounds: patterns of nodes, guards, fused operators."""
