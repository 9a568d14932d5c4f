package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestMistakesAreExplained: what is misspelt is named with what was likely meant, and no error is
// in words of the program's insides.
func TestMistakesAreExplained(t *testing.T) {
	for line, want := range map[string]string{
		"run --polcy x":                          `unknown flag --polcy; did you mean --policy?`,
		"run -polcy":                             `did you mean --policy?`,
		"run --qqqqqq":                           `unknown flag --qqqqqq; see "evict run --help"`,
		"run --tokens abc":                       `--tokens: got "abc", want a whole number`,
		"run --tokens 99999999999999999999":      "too large a number",
		"run --tokens":                           "--tokens: got no value, want a whole number",
		"run --seed -1":                          `--seed: got "-1", want a whole number, 0 or more`,
		"run --budget lots hi":                   `run: --budget: got "lots", want KV entries`,
		"run --budget 9223372036854775807 hi":    `run: --budget: got 9223372036854775807, want at most 2147483647 entries`,
		"inspect --budget 4611686018427387904":   `want at most 2147483647 entries`,
		"eval --concurrency 9223372036854775807": `concurrency: got 9223372036854775807, want 0 to 4096`,
		"judge out --judge http://localhost --judge-model m --concurrency 9223372036854775807": `concurrency: got 9223372036854775807, want 0 to 1024`,
		"run --temperature x":                    `--temperature: got "x", want a number`,
		"run --policy SnapKV --example section":  `did you mean "snapkv"?`,
		"run --policy full --example sektion":    `did you mean "section"?`,
		"run --policy full --device gpu hi":      `did you mean "cuda:0"?`,
		"run --policy full --set snapkv.windw=8": `did you mean "window"?`,
		"eval --json=maybe":                      `--json: got "maybe", want true or false`,
		"eval --task sektion":                    `did you mean "section"?`,
		"eval --task niah/singel_1":              "subtask",
		"eval --metric qa_f2":                    `--metric: unknown metric "qa_f2", want one of:`,
		"costs --tokens a,b":                     "want whole numbers, comma-separated",
		"costs --chip h100-pice":                 `did you mean "h100-pcie"?`,
		"help nosuch":                            `unknown command "nosuch", want one of: calibrate, chat,`,
		"help rnu":                               `did you mean "run"?`,
		"help run more":                          `"evict run" has no commands`,
		"rnu":                                    `unknown command "rnu", want one of: calibrate, chat,`,
		"completion":                             "got no argument, want SHELL",
		"completion tcsh":                        `unknown shell "tcsh", want one of: bash, zsh, fish`,
		"policies snapvk":                        `policies: unknown policy "snapvk", want one of: `,
		"policies SnapKV":                        `did you mean "snapkv"?`,
		"run some words":                         `got the arguments "some" and "words", want one text, in quotes, or a text and "-"`,
		"policies snapkv tova":                   `got the arguments "snapkv" "tova", want [NAME]`,
		"run":                                    `prompt: got none, want one of a text, --messages, --token-ids and --example`,
		"inspect hi --example section":           `prompt: got a text and --example, want one of`,
		"inspect --token-ids - --example hops":   `prompt: got --token-ids and --example, want one of`,
		"run hi --prompt ho":                     `prompt: got the argument "hi" and --prompt "ho", want one of them`,
		"run --model . hi":                       `open model .: stat config.json`,
		"run --model ../evict hi":                `open model ../evict: stat config.json`,
		"run --adapter . --example needle":       `read adapter .: not an adapter folder: no glimpse.json, want a folder that train has written`,
		"run --pattern . --policy duoattention --example needle": `--pattern .: pattern: stat config.json: no such file or directory, want a folder that evict patterns has written`,
		"eval --config .":                    `.: a folder, want a regular file`,
		"judge out":                          `judge: got --judge "" and --judge-model "", want both`,
		"judge out --judge http://localhost": `judge: got --judge "http://localhost" and --judge-model "", want both`,
		"report out -o":                      `report: --out: got no value, want one: file to write: .html, .md, or`,
		"report out -o .":                    `report: --out: .: got a folder, want a file, as report.html`,
		"report out -o x":                    `report: --out: x: want a name that ends in .html or .md, as x.html`,
		"eval --plot":                        `eval: --plot: got no value, want one: file for a plot`,
		"models more":                        `got the argument "more", want none`,
	} {
		_, _, err := execute(t, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want it to say %q", line, err, want)
			continue
		}
		for _, inner := range []string{"strconv", "accepts", "arg(s)", "invalid argument", "\n"} {
			if strings.Contains(err.Error(), inner) {
				t.Errorf("%s: error %q says %q", line, err, inner)
			}
		}
	}
}

// TestLargestBudget: no policy computes beyond its numbers with the largest budget that there is.
func TestLargestBudget(t *testing.T) {
	out, _, err := execute(t, "eval", "--policy", "all", "--budget", "2147483647,1048576", "--task", "section", "--samples", "1", "--tokens", "64", "--json")
	if err != nil || strings.Contains(out, `"error"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestShellCompletesValues(t *testing.T) {
	completed := func(line ...string) string {
		c := exec.Command(os.Args[0], append([]string{cobra.ShellCompRequestCmd}, line...)...)
		c.Env = append(os.Environ(), asProgram+"=1")
		out, err := c.Output()
		if err != nil {
			t.Fatal(line, err)
		}
		return string(out)
	}
	for _, x := range []struct {
		line []string
		want []string // among the values
		not  string
	}{
		{[]string{"run", "--policy", "sn"}, []string{"snapkv"}, "full"},
		{[]string{"run", "--policy", "snapkv:q"}, []string{"snapkv:quest"}, "quest"},
		{[]string{"eval", "--policy", "snapkv,la"}, []string{"snapkv,laq"}, "laq"},
		{[]string{"eval", "--policy", "snapkv,s"}, []string{"snapkv,sparq"}, "snapkv,snapkv"},
		{[]string{"eval", "--task", "section,ho"}, []string{"section,hops"}, "hops"},
		{[]string{"run", "--example", "ne"}, []string{"needle"}, "section"},
		{[]string{"run", "--device", ""}, []string{"cpu", "auto"}, "reference"},
		{[]string{"run", "--adapter", "sh"}, []string{"shipped"}, "snapkv"},
		{[]string{"eval", "--metric", "qa_f1,rouge"}, []string{"qa_f1,rougeL"}, "rougeL"},
		{[]string{"policies", "sn"}, []string{"snapkv"}, "full"},
		{[]string{"help", ""}, []string{"run", "chat"}, "cpu"},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}, "run"},
	} {
		out := completed(x.line...)
		var got []string
		for line := range strings.Lines(out) {
			value, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, value)
		}
		for _, want := range x.want {
			if !slices.Contains(got, want) {
				t.Errorf("%q: %q, want %q among them", x.line, got, want)
			}
		}
		if slices.Contains(got, x.not) {
			t.Errorf("%q: %q, want no %q", x.line, got, x.not)
		}
	}
	// A budget is no name, and no file either.
	if out := completed("run", "--budget", ""); strings.TrimSpace(out) != ":4" {
		t.Errorf("--budget: %q, want nothing and no files", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, _, err := execute(t, "completion", shell); err != nil || !strings.Contains(out, "__complete") {
			t.Errorf("script of %s: %d bytes, %v", shell, len(out), err)
		}
	}
}

// TestFlagsAreInGroups: help shows flags in groups, in their order.
func TestFlagsAreInGroups(t *testing.T) {
	out, _, err := execute(t, "run", "--help-all")
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, title := range []string{"\nModel:\n", "\nPrompt:\n", "\nPolicy:\n", "\nSampling:\n", "\nStorage:\n", "\nGeneral:\n"} {
		i := strings.Index(out, title)
		if i < at {
			t.Errorf("%q comes at %d, want it after %d in\n%s", title, i, at, out)
		}
		at = i
	}
}

func TestDefaultsFromTheEnvironment(t *testing.T) {
	t.Setenv("GLIMPSE_MODEL", "no/such folder")
	t.Setenv("GLIMPSE_THREADS", "3")
	out, _, err := execute(t, "run", "--help-all")
	out = strings.Join(strings.Fields(out), " ")
	if err != nil || !strings.Contains(out, `[$GLIMPSE_MODEL] (default "no/such folder")`) || !strings.Contains(out, "[$GLIMPSE_THREADS] (default 3)") || !strings.Contains(out, "[$GLIMPSE_DEVICE]") {
		t.Errorf("help, error %v:\n%s", err, out)
	}
	for _, command := range []string{"run", "eval"} {
		args := map[string][]string{"run": {"--example", "section"}, "eval": {"--samples", "1"}}[command]
		if _, _, err := execute(t, append([]string{command, "--policy", "full"}, args...)...); err == nil || !strings.Contains(err.Error(), "no/such folder") {
			t.Errorf("%s: error %v, want one of the model of the environment", command, err)
		}
	}
	if _, _, err := execute(t, "run", "--policy", "full", "--model", "", "--example", "section", "--tokens", "64"); err != nil {
		t.Errorf("--model is not above the environment: %v", err)
	}
	t.Setenv("GLIMPSE_ADAPTER", "no/such adapter")
	if _, _, err := execute(t, "run", "--model", "", "--example", "section", "--tokens", "64"); err == nil || !strings.Contains(err.Error(), "no/such adapter") {
		t.Errorf("error %v, want the adapter of the environment", err)
	}
	if _, _, err := execute(t, "run", "--model", "", "--adapter", "shipped", "--example", "section", "--tokens", "64"); err != nil {
		t.Errorf("--adapter is not in the place of the environment's: %v", err)
	}
	t.Setenv("GLIMPSE_THREADS", "many")
	if _, _, err := execute(t, "policies"); err == nil || !strings.Contains(err.Error(), `environment variable GLIMPSE_THREADS: got "many", want a whole number`) {
		t.Errorf("error %v", err)
	}
}
