// Mixed precision: autocast and loss scaling.
#pragma once
#include "halftape/amp/async_grad_scaler.h"
#include "halftape/amp/autocast.h"
#include "halftape/amp/function.h"
#include "halftape/amp/grad_scaler.h"
#include "halftape/amp/laws/laws.h"
#include "halftape/amp/policy.h"
#include "halftape/amp/scaler_base.h"
#include "halftape/amp/tools/applied_steps.h"
#include "halftape/amp/tools/checked_step.h"
#include "halftape/amp/tools/explain.h"
#include "halftape/amp/tools/inject.h"
#include "halftape/amp/tools/precision_policy.h"
