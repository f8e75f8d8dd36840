"""What the exact arithmetic costs, as ratios against peers measured in the same run."""
