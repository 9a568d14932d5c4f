package eviction_test

func init() { naivePolicies["lookaheadkv"] = learnedPlan }
