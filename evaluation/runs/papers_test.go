package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"glimpse/engine"
	"glimpse/eviction"
)

const papersFolder = "../../lab/papers"

// paperConfigs returns the configurations of lab/papers/papers.yaml by their names, without their notes.
func paperConfigs(t *testing.T) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(papersFolder, "papers.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var entries map[string]map[string]any
	if err := yaml.Unmarshal(data, &entries); err != nil {
		t.Fatal(err)
	}
	configs := map[string][]byte{}
	for name, entry := range entries {
		if note, _ := entry["note"].(string); !strings.Contains(note, "arXiv:") {
			t.Errorf("%s: note %q names no paper", name, note)
		}
		delete(entry, "note")
		if configs[name], err = yaml.Marshal(entry); err != nil {
			t.Fatal(err)
		}
	}
	return configs
}

// TestPaperConfigs: every entry is read strictly, and its policies, options, tasks and budgets
// are what they say; it names the adapters, drafts and patterns that its policies take, and
// no others.
func TestPaperConfigs(t *testing.T) {
	configs := paperConfigs(t)
	if len(configs) < 90 {
		t.Fatalf("%d configurations", len(configs))
	}
	names := regexp.MustCompile(`^(lookaheadkv|judgeq|d2o|dapq|rocketkv)_(table|figure)\d+[a-z]?(_[a-z0-9_]+)?$`)
	for name, config := range configs {
		t.Run(name, func(t *testing.T) {
			if !names.MatchString(name) {
				t.Error("not named after a table or figure")
			}
			path := filepath.Join(t.TempDir(), name+".yaml")
			if err := os.WriteFile(path, config, 0o644); err != nil {
				t.Fatal(err)
			}
			j := Default()
			if err := j.Read(path, nil, func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			if len(j.Models) == 0 || len(j.Policies) == 0 || len(j.Tasks) == 0 || len(j.Budgets) == 0 {
				t.Errorf("%d models, %d policies, %d tasks, %d budgets: want some of each", len(j.Models), len(j.Policies), len(j.Tasks), len(j.Budgets))
			}
			j.Data = absentData
			plans, err := j.checkedPlans()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range plans {
				for name, value := range p.setting.Options {
					if name != "lengths" || value == "" {
						continue
					}
					for n := range strings.SplitSeq(value, ",") {
						if v, err := strconv.Atoi(n); err != nil || v < 128 || v > 1<<17 {
							t.Errorf("task %s: lengths %s", p.name, value)
						}
					}
				}
			}
			policies, err := engine.PolicyNames(strings.Join(j.Policies, ","))
			if err != nil {
				t.Fatal(err)
			}
			adapters, drafts, patterns := false, false, false
			for _, name := range policies {
				needs, err := eviction.NeedsOf(name, nil)
				if err != nil {
					t.Fatal(err)
				}
				adapters, drafts, patterns = adapters || needs.Adapter != "", drafts || needs.Draft, patterns || needs.Pattern
			}
			for _, m := range j.Models {
				if strings.Count(m.Model, "/") != 1 {
					t.Errorf("model %q, want org/name", m.Model)
				}
				if got := []bool{len(m.Adapters) > 0, len(m.Drafts) > 0, m.Pattern != ""}; !slices.Equal(got, []bool{adapters, drafts, patterns}) {
					t.Errorf("%s: adapters, drafts and a pattern: %v, its policies take %v", m.Model, got, []bool{adapters, drafts, patterns})
				}
			}
		})
	}
}

// TestPaperConfigsAreListed: lab/papers/README.md has a row for every table and figure of
// the five papers, with the files that are there, or a reason.
func TestPaperConfigsAreListed(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(papersFolder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][2]int{"LookaheadKV": {16, 10}, "Judge Q": {8, 11}, "D2O": {20, 10}, "DapQ": {9, 6}, "RocketKV": {21, 12}} // tables, figures
	row := regexp.MustCompile(`(?m)^\| (table|figure) \| (\d+) \| (.+) \|$`)
	link := regexp.MustCompile("`([a-z0-9_]+\\.yaml)`")
	linked := map[string]bool{}
	sections := strings.Split(string(data), "\n## ")[1:]
	for _, section := range sections {
		paper, _, _ := strings.Cut(section, " (")
		want, ok := all[paper]
		if !ok {
			continue
		}
		delete(all, paper)
		seen := map[string]bool{}
		for _, m := range row.FindAllStringSubmatch(section, -1) {
			if seen[m[1]+m[2]] {
				t.Errorf("%s: %s %s twice", paper, m[1], m[2])
			}
			seen[m[1]+m[2]] = true
			if len(m[3]) < 10 {
				t.Errorf("%s: %s %s: %q", paper, m[1], m[2], m[3])
			}
		}
		for i, kind := range []string{"table", "figure"} {
			for n := 1; n <= want[i]; n++ {
				if !seen[fmt.Sprint(kind, n)] {
					t.Errorf("%s: no row for %s %d", paper, kind, n)
				}
			}
		}
		if len(seen) != want[0]+want[1] {
			t.Errorf("%s: %d rows, want %d", paper, len(seen), want[0]+want[1])
		}
		for _, m := range link.FindAllStringSubmatch(section, -1) {
			linked[m[1]] = true
		}
	}
	if len(all) > 0 {
		t.Errorf("no section of %v", all)
	}
	for name := range paperConfigs(t) {
		if !linked[name+".yaml"] {
			t.Errorf("%s is not listed", name)
		}
		delete(linked, name+".yaml")
	}
	if len(linked) > 0 {
		t.Errorf("listed and not there: %v", linked)
	}
}

// TestAbsentAdapters: a dry run tells which adapters and patterns are not there.
func TestAbsentAdapters(t *testing.T) {
	here := t.TempDir()
	s := Subject{Adapters: []string{engine.Shipped, here, "a=" + here, "b=" + here + "/b", "s3://bucket/c"}, Pattern: here + "/d"}
	if got, want := fmt.Sprint(s.absent()), fmt.Sprintf("[adapter %s/b pattern of retrieval heads %s/d]", here, here); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := (Subject{}).absent(); got != nil {
		t.Errorf("nothing is asked for, and %v is absent", got)
	}
}
