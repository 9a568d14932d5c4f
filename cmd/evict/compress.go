package main

import (
	"fmt"
	"io"

	"glimpse/console"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/internal/outputs"
	"glimpse/internal/stdin"
	"glimpse/internal/tables"
	"glimpse/kernels"
	"glimpse/model"

	"github.com/spf13/cobra"
)

func newCompress() *cobra.Command {
	var (
		s      setup
		p      console.PromptSource
		budget eviction.Budget
		out    string
		files  outputs.Files
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "compress FILE",
		Short: "Evict a document once, for any number of questions",
		Long: `Evict a document once, for any number of questions.

The text of FILE ("-" is standard input) becomes the beginning of a user's message in the
model's chat template. What the policy keeps of it, before it knows of any question, goes
into the file of --out, a safetensors file. "run --context" and "chat --context" ask it.`,
		Annotations: cli.Details(`
The policy sees no question: one that scores by the last tokens finds little, and how the KV
heads share the budget matters most. They share it as they were found to need it for any
question ("train budgets"), where such budgets come with this program for the model, unless
--heads says otherwise. Policies that evict or choose while they decode have no contexts.

The file has keys and values in the type of --cache-dtype, the tokens, and hashes of the model, the
policy with its adapter and of itself: one that is damaged, or of another model, is refused.

` + modelDetails),
		Example: `  evict compress --model path/to/llama --budget 25% report.txt -o report.kv --replace
  evict run --model path/to/llama --context report.kv "What does it say of caches?"`,
		Args: cli.Args("FILE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			defer kernels.CatchDevice(&err)
			files.Input(args[0])
			defer files.Close()
			file := files.Open("--out", out)
			if err := files.Err(); err != nil {
				return fmt.Errorf("compress: %w", err)
			}
			if !file.Wanted() {
				return fmt.Errorf("compress: --out: want the file that the context goes to")
			}
			var doc *console.Prompt
			var inChat bool
			m, policy, err := s.openPolicy(cmd, func(m *model.Model) error {
				if doc, inChat, err = p.ReadContext(cmd.Context(), m, args[0], stdin.NewReader(cmd.Context(), cmd.InOrStdin())); err != nil {
					return fmt.Errorf("compress: %w", err)
				}
				n := len(doc.IDs)
				pairs, _ := budget.Beside(n, doc.Keep.Tokens(n))
				return s.CheckMemory(cmd.Context(), m, eviction.FootprintOptions{Tokens: n, Budget: pairs, MaxNew: 1})
			})
			if err != nil {
				return err
			}
			defer m.Close()
			session, err := eviction.NewRuntime(m.Model).NewSession(policy.Configured, budget)
			if err == nil {
				err = doc.CheckKeep(cmd.ErrOrStderr(), policy, budget, session)
			}
			ids := doc.IDs
			if err == nil {
				err = session.Compress(cmd.Context(), eviction.Prompt{Tokens: ids, Progress: console.ShowPrefill(cmd.ErrOrStderr())}, 0)
			}
			if err != nil {
				return fmt.Errorf("compress: %w", err)
			}
			origin, err := m.ContextOrigin(cmd.Context(), policy, budget)
			if err != nil {
				return fmt.Errorf("compress: %w", err)
			}
			c := session.Context
			origin.Chat = inChat
			if err := file.Write(func(w io.Writer) error { return c.Write(cmd.Context(), m.Model, w, origin) }); err != nil {
				return err
			}
			if asJSON {
				return cli.WriteJSON(cmd, struct {
					Schema string          `json:"schema"`
					Model  string          `json:"model"`
					Policy string          `json:"policy"`
					Budget eviction.Budget `json:"budget"`
					Tokens int             `json:"tokens"`
					Bytes  int64           `json:"kept_bytes"`
					Full   int64           `json:"full_bytes"`
				}{"glimpse.context/1", m.Name, origin.Policy, budget, len(ids), c.Bytes(), c.FullBytes})
			}
			info := tables.NewWrapper(cmd.ErrOrStderr(), tables.Columns(cmd.ErrOrStderr()))
			_, err = fmt.Fprintf(info, "%d tokens, policy %s, budget %s: kept %.1f of %.1f KiB (%.1f%%) in %v\n", len(ids), origin.Policy, budget.Describe(len(ids)),
				float64(c.Bytes())/1024, float64(c.FullBytes)/1024, 100*float64(c.Bytes())/float64(c.FullBytes), session.PrefillTime.Round(1e6))
			return err
		},
	}
	f := cmd.Flags()
	s.addFlags(f)
	s.bindChat(f)
	s.bindPolicy(f, "")
	bindBudget(f, &budget, "document", 0)
	bindKeep(f, &p.Keep, "")
	f.Var(systemFlag{&p.System}, "system", "system prompt before the document: text, or @FILE")
	f.BoolVar(&p.Raw, "raw", false, "take the text as it is, without the model's chat template")
	f.StringVarP(&out, "out", "o", "", "file that the context goes to")
	files.Bind(f)
	f.BoolVar(&asJSON, "json", false, "print a JSON object of what was kept")
	cli.Everyday(cmd, "model", "adapter", "device", "policy", "budget", "heads", "set", "system", "out", "replace", "json")
	return cmd
}
