package training

import (
	"encoding/json"
	"testing"
)

// A mismatch names the keys that differ; more steps are no mismatch.
func TestSettingsDiffer(t *testing.T) {
	const was = `{"steps": 4, "batch": 2, "adapters": [{"rows": 8, "lr": 0.1}], "seed": 18446744073709551615}`
	for is, want := range map[string]string{
		was: "",
		`{"seed": 18446744073709551615, "batch": 2, "steps": 9, "adapters": [{"lr": 0.1, "rows": 8}]}`:   "",
		`{"steps": 3, "batch": 2, "adapters": [{"rows": 8, "lr": 0.1}], "seed": 18446744073709551615}`:   "settings differ: steps: the checkpoint has 4, this run 3",
		`{"steps": 9, "batch": 4, "adapters": [{"rows": 16, "lr": 0.1}], "seed": 18446744073709551615}`:  "settings differ: adapters.0.rows: the checkpoint has 8, this run 16; batch: the checkpoint has 2, this run 4",
		`{"steps": 4, "adapters": [{"rows": 8, "lr": 0.1}], "seed": 18446744073709551614, "tokens": 64}`: "settings differ: batch: the checkpoint has 2, this run none; seed: the checkpoint has 18446744073709551615, this run 18446744073709551614; tokens: the checkpoint has none, this run 64",
	} {
		err := settingsDiffer(json.RawMessage(was), json.RawMessage(is))
		if got := ""; err != nil {
			if got = err.Error(); got != want {
				t.Errorf("%s: %q, want %q", is, got, want)
			}
		} else if want != "" {
			t.Errorf("%s: no error, want %q", is, want)
		}
	}
}
