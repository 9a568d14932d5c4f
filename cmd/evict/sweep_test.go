package main

import (
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sweepFolder is what "train sweep" leaves: adapters in their passes, and the table. The
// adapters are the shipped one; paths are those of another place.
func sweepFolder(t *testing.T, rows []int, modules []string) (folder string, names []string) {
	t.Helper()
	folder = t.TempDir()
	type point struct {
		Name    string  `json:"name"`
		Rows    int     `json:"rows"`
		Modules string  `json:"modules"`
		Rate    float64 `json:"learning_rate"`
		Folder  string  `json:"folder"`
	}
	var points []point
	for _, n := range rows {
		for i, m := range modules {
			name := fmt.Sprintf("lookaheadkv-n%d-%s-lr0.001", n, m)
			place := filepath.Join(fmt.Sprintf("pass-%d", i+1), "adapters", name)
			if err := os.CopyFS(filepath.Join(folder, place), os.DirFS("../../adapters/reference/lookaheadkv")); err != nil {
				t.Fatal(err)
			}
			points, names = append(points, point{name, n, m, 1e-3, filepath.Join("elsewhere", place)}), append(names, name)
		}
	}
	text, err := json.Marshal(points)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "sweep.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return folder, names
}

// TestEvalOfASweep: the folder of a sweep stands for its adapters, and the chart has a line
// for each set of modules.
func TestEvalOfASweep(t *testing.T) {
	folder, names := sweepFolder(t, []int{4, 8, 32}, []string{"none", "all"})
	picture := filepath.Join(t.TempDir(), "sweep.png")
	args := []string{"eval", "--policy", "full,snapkv,lookaheadkv", "--adapter", folder, "--budget", "32", "--task", "section", "--tokens", "128", "--samples", "2"}
	out, log, err := execute(t, append(args, "--json", "--times", "ttft", "--sweep-plot", picture)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	for _, name := range names {
		if !strings.Contains(out, fmt.Sprintf(`"adapter":%q`, name)) {
			t.Errorf("no row of %s in %s", name, out)
		}
	}
	f, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	inks := map[[3]uint32]int{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			r, g, b, _ := img.At(x, y).RGBA()
			inks[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	for _, ink := range [][3]uint32{{0x00, 0x72, 0xb2}, {0xd5, 0x5e, 0x00}} {
		if inks[ink] < 500 {
			t.Errorf("%d pixels of colour %v", inks[ink], ink)
		}
	}
	if inks[[3]uint32{0x00, 0x9e, 0x73}] > 0 {
		t.Error("a third line in colour")
	}
	if img.Bounds().Dx() < 1700 || img.Bounds().Dy() != 720 {
		t.Errorf("%v, want two diagrams beside each other", img.Bounds())
	}
	for want, more := range map[string][]string{
		"--sweep-plot: got 0 sweeps": {"--adapter", filepath.Join(folder, "pass-1", "adapters", names[0]), "--sweep-plot", picture + "x.png"},
		"ends in .png, .svg or .pdf": {"--adapter", folder, "--sweep-plot", picture + ".gif"},
	} {
		if _, _, err := execute(t, append([]string{"eval", "--policy", "lookaheadkv", "--task", "section", "--samples", "1"}, more...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", more, err, want)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "sweep.json"), []byte(`[{"name": "a", "rows": 0, "folder": "b/a"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), `adapter 0 is "a" of 0 rows`) {
		t.Errorf("a damaged sweep: %v", err)
	}
}
