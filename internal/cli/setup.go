package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"glimpse/internal/suggest"
	"glimpse/internal/tables"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Setup gives a command, once it has all its subcommands, what both binaries share: --threads,
// what is said beside results, defaults from a file and the environment, completion by the shell, grouped help, and errors in plain words.
func Setup(root *cobra.Command, values map[string]Values) {
	threads := root.PersistentFlags().Int("threads", 0, "number of threads; 0 is as many as the processors that a container or the system lets the program use")
	var talk talkFlags
	talk.bindTalk(root.PersistentFlags())
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(usage)
	helpAll := root.PersistentFlags().Bool("help-all", false, "show the help of a command with all of its flags")
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		w := c.OutOrStdout()
		page := tables.NewPage(w)
		writeHelp(page, c, tables.Columns(w), *helpAll)
		page.Flush()
	})
	root.SetHelpCommand(OnRanks(newHelp()))
	root.AddCommand(OnRanks(newCompletion()), OnRanks(newMan()), OnRanks(newConfig()))
	root.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(c, args[0])
	}
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	own, wrong := readDefaults()
	eachCommand(root, func(c *cobra.Command) {
		if err := own.applyDefaults(c); err != nil && wrong == nil {
			wrong = err
		}
		if completing {
			completeFlags(c, values)
		}
		check := c.Args
		c.Args = func(c *cobra.Command, args []string) error {
			if *helpAll {
				return pflag.ErrHelp
			}
			if check == nil {
				return nil
			}
			return check(c, args)
		}
	})
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if wrong != nil && c.Name() != "help" {
			return wrong
		}
		if err := checkRanks(c, os.Getenv); err != nil {
			return err
		}
		if err := talk.applyTalk(c); err != nil {
			return err
		}
		own.report(c)
		return SetThreads(*threads)
	}
}

// eachCommand calls f for a command and all below it.
func eachCommand(c *cobra.Command, f func(c *cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, f)
	}
}

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(c *cobra.Command, args []string) error {
			at := c.Root()
			for _, name := range args {
				i := slices.IndexFunc(at.Commands(), func(sub *cobra.Command) bool { return sub.Name() == name || sub.HasAlias(name) })
				if i < 0 {
					return fmt.Errorf("help: %w", unknownCommand(at, name))
				}
				at = at.Commands()[i]
			}
			at.InitDefaultHelpFlag()
			at.InitDefaultVersionFlag()
			return at.Help()
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return commandNames(c.Root()), cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// unknownCommand is the error of a command without a subcommand of the name.
func unknownCommand(c *cobra.Command, name string) error {
	names := commandNames(c)
	if len(names) == 0 {
		return fmt.Errorf("%q has no commands, got %.40q", c.CommandPath(), name)
	}
	return suggest.Unknown("command", name, names)
}

func commandNames(c *cobra.Command) []string {
	var names []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	return names
}

// shells have completion, with how it is loaded once.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script of a shell: " + strings.Join(shells, ", "),
		Long: `Print the completion script of a shell: ` + strings.Join(shells, ", ") + `.

It completes commands, flags and the values of flags: policies, tasks, examples, devices,
presets, metrics and more, in comma-separated lists, too. Load it for one session as shown,
or write it where the shell looks for completions.`,
		Example: `  source <(evict completion bash)
  source <(train completion zsh)
  evict completion fish | source`,
		Args:      Args("SHELL"),
		ValidArgs: shells,
		RunE: func(c *cobra.Command, args []string) error {
			root, out := c.Root(), c.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			return fmt.Errorf("completion: %w", suggest.Unknown("shell", args[0], shells))
		},
	}
}
