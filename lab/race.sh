#!/usr/bin/env bash
# Runs the tests of all packages under the race detector, with -short. Arguments go to
# "go test" and choose packages or tests.
#
# Left out are tests that the detector can learn nothing from: those of one goroutine, and
# those that repeat, more slowly, the goroutines of a test that stays. All of them run
# without the detector in scripts/test.sh.
#
# When all packages have passed, the digest of all Go sources goes into lab/race.seen, which
# is to be committed; with --changed nothing runs while it is that of the sources at hand.
set -euo pipefail
source "$(dirname "$0")/../scripts/common.sh"

# digest covers what the tests are compiled from, and this script.
digest() {
  git ls-files --cached --others --exclude-standard -- '*.go' '*.s' go.mod go.sum lab/race.sh scripts/common.sh |
    while read -r file; do [ ! -f "$file" ] || echo "$file"; done |
    LC_ALL=C sort -u | xargs -d '\n' sha256sum | sha256sum | cut -d' ' -f1
}
seen_file=lab/race.seen
now=$(digest) # before the run, in which somebody may edit
if [ "${1:-}" = --changed ]; then
  shift
  if [ "$now" = "$(cat "$seen_file" 2>/dev/null)" ]; then
    echo "every package has passed under the race detector as its sources are ($seen_file)"
    exit
  fi
fi

without=(
  # One goroutine: the references, drawing, matching, damage to files that a reader gets as a whole.
  '^TestBackendsConform$/^reference'
  '^TestHostSelector$/^reference'
  '^Test(LongConversation|ParseTime|Linear|Steps|PairWriterErrors|PlanScales|Forecast)$'
  '^Test(PlotAccuracy|PlotNeedle|PlotAccuracyOfConstantRows|PlotAccuracyIsTheSameForTheSameRows)$'
  '^Test(RealTokenizers|ExpansionIsBounded|LlamaCppVectors|GoldenPatterns|NormalWork|Concurrency)$'
  '^Test(LongErrorsAreCut|AdapterBitFlips|HostileAdapters)$'
  # More shapes of products whose tasks are those of TestGemmBits.
  '^Test(BlocksManyRows|BlocksFewRows|GemmSmallShapes|FewRowsAndColumns|GemmLargeShapes|Splits|KernelsStayInsideTheirSlices|ExpAndLogOnAllMagnitudes)$'
  # Attention whose tasks are those of TestBackendsConform and TestThreadsDoNotChangeBits; TestCachesOfBlocks stays.
  '^Test(HalfCaches|EntriesThatLeftTheWindow)$'
  # Policies and families on the processor's backend, whose goroutines are those of
  # TestBackendsConform and TestThreadsDoNotChangeBits. TestKeptSetsAgainstNaive and
  # TestPoliciesAreDeterministic run every policy.
  '^Test(SecondTurn|ResponsesAgainstNaive|AmpleBudgetIsFull|EveryComposition|PromptsOfOneToken|H2ODecoding|ShareOfAConversation|FootprintOfEveryPolicy)$'
  '^Test(BF16AgainstTransformers|ResponsesAgainstTransformers)$'
  '^Test(StudyIsPrefill|Traffic|DecodingAgainstNaive|LongResponsesDoNotGrow|CaMMergesWithTheMean|DecodingStaysWithinTheBudget)$'
  '^Test(SharedPrefix|FootprintOfSessions|FootprintOfRoundedCaches|PoliciesOverRoundedWindows|RecurrentLayersAreLeftAlone|StatesGoNowhereElse|KVShapes|SessionsGoOn|PrefillPeak)$'
  '^Test(WindowsOfRoundedCaches|WindowsAreFreed|StudyLeavesWindowsAlone|KeptSetsOfRoundedWindows)$'
  '^Test(PoolingIsTheSameForAll|PoliciesKeepWhatTheyMay|LayersUseTheSameMemory|SlidingWindows|RandomIsUniform)$'
  '^Test(GradientsOfEveryFamily|GradientsAgainstFiniteDifferences|RetainFreesMemory)$'
  # Training runs like those of TestRunFolder, TestRanksHaveTheBitsOfOneProcess, TestResumeKeepsTheBest, TestValidation
  # and TestSampleCacheOnABrokenDisk.
  '^Test(Run|ResumeExtendsRun|RanksResumeAnyNumberOfRanks|SampleCacheChangesNoBit|LookaheadKVStepAgainstPyTorch|JudgeQStepAgainstPyTorch|StepOverBlocksAgainstPyTorch|JSONIsDocumented)$'
  '^Test(LossFalls|ScratchIsCounted|FirstLossAgrees)$'
  # What is killed from outside and looked at afterwards: no goroutine sees it. The same runs go on to
  # their ends in TestRunFolder, TestSignals and TestS3Run.
  '^Test(KilledRuns|KilledExport|KilledWriter)$'
  # Tables, lines at a terminal and refused commands: one goroutine. TestChatInterrupted and TestChatOnTerminal stay.
  '^Test(TablesOnTerminal|TablesInPipe|PlainErrors|Headings)$'
  # Commands: what is damaged, asked for or left behind around the same run. TestS3Run,
  # TestShardsInABucket, TestInterrupt and TestSignals stay.
  '^Test(DamagedCheckpoint|Sweep|Export|EveryFamilyTrains|MissingShardsAreTold|PlanOfTheHub|PlanOfASweep|ResumeOnChangedData|PlanOfLargeModels|LogIsNotOverwritten|CacheDType)$'
  '^Test(EnvironmentIsBelowTheFile|TrainingMixes|GenerateMix|LogInTheWorkingFolder|ShardsAreTheWhole|PresetAndOverrides|RunFileErrors|SweepIsBounded|GenerateThenTrain|SameSeedSameFiles)$'
  # One prompt after the other under policies, as in TestPoliciesAreDeterministic, and what is said of them.
  '^Test(PolicyIsDescribed|RunPrintsGoldenTokens|DefaultPolicy|DraftsAndPatterns|InspectSummary|InspectQueries|BudgetShares|HeldOfTheWhole|ExamplesAreAnswered|PlanOfNothing)$'
  # Evaluations: prompts that one goroutine makes, and runs like those of TestShardsAreTheRun, TestInterruptedRunTellsWhatItHas
  # and TestSampleThatFails.
  '^Test(Latency|RULERTasks|RULERLengths|BenchmarksEqualTheirPrograms|NIAH|DataForms|SCBench|MTBench|LongBenchTruncatesRealPrompts|Perplexity|LongBenchOnRealRows|Continuation|Responses)$'
  '^Test(AnswersDoNotDependOnTheBatch|ResumeAfterACut|Join|Read|FolderIsNotLost|KilledEvaluation|EvalOfAnyModel|Costs|EvalOfASweep)$'
  # Drawing, arithmetic and grammars of one goroutine.
  '^Test(MaskIsAccept|EveryInterval|HostileGrammars)$'
  '^Test(D2OBudgets|ForcedTextOfBoundedMemory|ForceIsGenerate)$'
  '^Test(DrawsAreUniform|LongDraws|LongAnswersFollowFromPrompts|LongFacts|Lessons)$'
)
# Packages that start no goroutine, lock nothing and whose tests run no program have nothing to show, though others may use
# them from several: they are left out when all are asked for. Of some, tests that start goroutines are named here.
few=(datasets serving/constraint model/tokenizer)
of_few='^Test(NoRegularFiles|FolderHasOneSetting|Concurrent|ConcurrentUse)$'
run() { # GO TEST'S ARGUMENTS...
  # Other modules are compiled for the detector here alone: without optimisation, which is faster. The reference
  # backend, the judge of tests, starts no goroutine: it is compiled as in scripts/test.sh.
  go test -race -short -vet=off -gcflags='github.com/...=-N -l' -gcflags='glimpse/kernels/reference=-race=false' "$@"
}
# Collecting garbage shows no race.
export GOGC=400 GOMEMLIMIT=2GiB GODEBUG=gcstoptheworld=2 # as in scripts/test.sh
failed='' all=''
if [ $# = 0 ]; then
  all=yes
  while read -r package folder; do
    [[ " ${few[*]} evaluation/tasks " != *" ${package#glimpse/} "* ]] || continue # tasks make prompts, one after the other
    ! sed 's|//.*||' "$folder"/*.go | grep -E '\bgo (func\b|[A-Za-z_.]+\()|errgroup|parallel\.|Parallel\(|\.Go\(|sync\.(Mutex|RWMutex|Cond|Map|WaitGroup)|SetFinalizer|AddCleanup|httptest|exec\.Command' >/dev/null || set -- "$@" "$package"
  done < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./...)
  [ $# -ge 20 ] || die "only $# packages start goroutines, by their sources"
  log=$(mktemp)
  run -v -run "$of_few" "${few[@]/#/./}" >"$log" 2>&1 || failed=yes
  grep -E '^(ok|---|FAIL|panic)|DATA RACE' "$log" || true
  [ -z "$failed" ] || cat "$log"
  [ "$(grep -cE '^--- PASS' "$log")" = 4 ] || { echo "not all of $of_few have passed" >&2; failed=yes; } # one may have another name
  rm "$log"
fi
run -skip "$(IFS='|'; echo "${without[*]}")" "$@"
[ -z "$failed" ]
[ -z "$all" ] || echo "$now" >"$seen_file"
