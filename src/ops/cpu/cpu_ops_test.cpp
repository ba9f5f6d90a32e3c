// Holds the CPU backend to the reference and to the row law, case by case and ISA by ISA.
#include <gtest/gtest.h>

#include <cctype>
#include <memory>

#include "ops/cpu/cpu_test.h"

namespace folio {
namespace {

struct CaseParam {
  std::string isa;
  op_cases::Case op;
};

inline std::vector<CaseParam> case_params(const std::vector<op_cases::Case>& cases) {
  std::vector<CaseParam> params;
  for (const std::string& isa : test_isas()) {
    for (const op_cases::Case& c : cases) params.push_back({isa, c});
  }
  return params;
}

inline std::string case_param_name(const testing::TestParamInfo<CaseParam>& info) {
  std::string name = info.param.isa + "_" + info.param.op.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

class CpuOpCase : public testing::TestWithParam<CaseParam> {
 protected:
  // Runs of the case on `threads` threads. The backend lives as long as the run.
  std::function<op_cases::Outputs(const std::vector<int32_t>&)> runner(std::shared_ptr<Ops> ops) const {
    ops->reserve(op_cases::limits_of({GetParam().op}));
    auto run = GetParam().op.prepare(*ops);
    return [ops, run](const std::vector<int32_t>& rows) { return run(rows); };
  }
  std::function<op_cases::Outputs(const std::vector<int32_t>&)> runner(int threads) const {
    return runner(std::shared_ptr<Ops>(make_cpu_ops({GetParam().isa, threads})));
  }
  std::vector<int32_t> all_rows() const {
    std::vector<int32_t> rows;
    for (int32_t r = 0; r < GetParam().op.rows; ++r) rows.push_back(r);
    return rows;
  }
};

TEST_P(CpuOpCase, AgreesWithTheReference) {
  const auto expected = runner(std::shared_ptr<Ops>(make_reference_ops()))(all_rows());
  EXPECT_EQ("", op_cases::check_close(expected, runner(2)(all_rows())));
}

TEST_P(CpuOpCase, ObeysTheRowLaw) {
  std::vector<std::function<op_cases::Outputs(const std::vector<int32_t>&)>> runs = {runner(1), runner(2), runner(3)};
  // Attention shares the list of a row among more than four threads.
  if (GetParam().op.name.starts_with("attend")) runs.push_back(runner(6));
  EXPECT_EQ("", op_cases::check_row_law(GetParam().op.rows, runs, 11));
}

INSTANTIATE_TEST_SUITE_P(All, CpuOpCase, testing::ValuesIn(case_params(op_cases::all_cases())), case_param_name);

}  // namespace
}  // namespace folio
