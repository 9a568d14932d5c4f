package eviction

func init() {
	Policies.Add("kvzip+", Policy{
		Kind: "prefill", Doc: "kvzip by the norm of what an entry adds to a row of the repetition, over the norm of the row", Source: "KVzip+ of KVzap (Jeblick & Jégou 2026, arXiv:2601.07891), as kvpress (github.com/NVIDIA/kvpress) has it",
		Scorer: true, Options: kvzipOptions(), New: func(s Settings) (Method, error) { return newKVzip(s, true), nil },
	})
}
