package eviction

func init() {
	Policies.Add("rocketkv-mt", Policy{
		Kind: "multi-turn", Doc: "rocketkv that drops nothing: every turn's decoding is restricted to what the first stage picks of the whole conversation", Source: "RocketKV (Behnam et al. 2025, arXiv:2502.14051) §3.5",
		Options: rocketOptions(128),
		New: func(s Settings) (Method, error) {
			return rocketkvMT{newRocketKV(s)}, nil
		},
	})
}

// rocketkvMT reads as little as rocketkv and holds as much as full.
type rocketkvMT struct{ rocketkv }

func (m rocketkvMT) Plan(p Prompt) Plan {
	plan := m.rocketkv.Plan(p)
	plan.KeepsAll = true
	return plan
}
