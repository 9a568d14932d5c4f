package checkpoints

import (
	"strings"
	"testing"
)

// TestAdapterBounds: an adapter that no run would make is refused when it is read, by its
// numbers when they are read and by its manifest before that.
func TestAdapterBounds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *Adapter)
		want   string
	}{
		"rows": {func(a *Adapter) {
			a.Embeddings = Matrix{Rows: 200_000, Cols: 4, Data: make([]float32, 800_000)}
		}, "200000 rows, want 1 to 4096"},
		"huge rows":  {func(a *Adapter) { a.Embeddings.Data[1] = 3e38 }, "row 0: squares sum to 9e+76"},
		"huge alpha": {func(a *Adapter) { a.Alpha = 1e308 }, "LoRA alpha: got 1e+308, want at most"},
		"large rows": {func(a *Adapter) { a.Embeddings.Data[1] = 1e18 }, ""},
	} {
		a := withLoRA()
		c.change(a)
		if err := a.Validate(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want it to say %q", name, err, c.want)
		}
	}
	for field, value := range map[string]string{"rows": "200000", "hidden_size": "9223372036854775807"} {
		files := exported(t, softTokens())
		lines := strings.Split(string(files[AdapterManifest]), "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, `  "`+field+`": `) {
				lines[i] = `  "` + field + `": ` + value + ","
			}
		}
		files[AdapterManifest] = []byte(strings.Join(lines, "\n"))
		sign(t, files)
		_, err := decodeManifest(files[AdapterManifest])
		wantErrorIs(t, err, ErrCorrupt, "want 1 to 4096 of up to 1048576")
	}
}
